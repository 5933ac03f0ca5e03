import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts', 'conformance/**/*.test.ts'],
    // Property and model tests are long on a two-core machine that loses its CPU for seconds at a time.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
}) as object;
