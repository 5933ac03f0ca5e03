// The MTU of an interface, where the system does not tell.
import { expect, it, vi } from 'vitest';
import { interfaceMtu } from '../../src/transport/interface-mtu.ts';

vi.mock('node:os', async (original) => ({
  ...(await original<typeof import('node:os')>()),
  networkInterfaces: (): never => {
    throw Object.assign(
      new Error('A system error occurred: uv_interface_addresses returned Unknown system error 13'),
      { code: 'ERR_SYSTEM_ERROR' },
    );
  },
}));

it('is not known where a sandbox keeps the interfaces back, and nothing is thrown at the connection', () => {
  expect(interfaceMtu('192.0.2.1')).toBeUndefined();
});
