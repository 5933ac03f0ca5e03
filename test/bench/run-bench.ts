/** `iwarp bench` in this process, and what it said. */
import { vi } from 'vitest';
import { run } from '../../bench/main.ts';

export async function bench(...args: string[]): Promise<{ status: number; said: string }> {
  let said = '';
  const take = (text: unknown): boolean => ((said += String(text)), true);
  const spies = [
    vi.spyOn(process.stdout, 'write').mockImplementation(take),
    vi.spyOn(process.stderr, 'write').mockImplementation(take),
  ];
  try {
    return { status: await run(args), said };
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
}
