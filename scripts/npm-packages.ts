/** The npm packages that the recipes and the programs use, by version. */
export const NPM_PACKAGES: readonly string[] = [
  '@grpc/grpc-js@1.14.7',
  'express@5.3.0',
  'fastify@5.12.8',
  'ioredis@6.0.0',
  'pg@8.23.1',
  'redis@6.3.1',
  'undici@7.30.2',
  'ws@8.23.0',
];
