/** The steps that begin a zero-copy write, each alone: table 1 of the paper. */
import { ACCESS } from '../../src/ddp/stag-table.ts';
import { takeOver } from '../../src/sockets/owned.ts';
import { checkBytes } from '../../src/base/errors.ts';
import type { Subject } from './paper.ts';
import { rnicOf } from './stream-ends.ts';

const STEP_MS = 20;
const LOT = 50;

/** Microseconds of one call; calls come in lots, so that the clock costs nothing. */
function step(name: string, call: () => void): Subject {
  return {
    name,
    measure: () => {
      const began = performance.now();
      let calls = 0;
      for (; performance.now() - began < STEP_MS; calls += LOT) for (let i = 0; i < LOT; i++) call();
      return Promise.resolve(((performance.now() - began) * 1000) / calls);
    },
  };
}

/** The check of the argument. */
export function createCheck(octets: number): Subject {
  const view = new Uint8Array(octets);
  return step('check of the argument', () => void checkBytes('data', view));
}

/** Registration and its end, as each advertisement needs them. */
export function register(octets: number): Subject {
  const pd = rnicOf().device.allocatePd();
  const view = new Uint8Array(octets);
  return step('register and deregister', () => pd.registerMemory(view, ACCESS.REMOTE_READ).deregister());
}

/** Transfer of ownership: the program's buffer is detached. The page protection of the paper. */
export function detach(octets: number): Subject {
  let memory: ArrayBufferLike = new ArrayBuffer(octets);
  return step('transfer of ownership', () => {
    memory = takeOver(memory).back;
  });
}

/** A copy of the same bytes, which all of it avoids. */
export function copyOfBytes(octets: number): Subject {
  const [from, to] = [new Uint8Array(octets).fill(1), new Uint8Array(octets)];
  return step('copy of the bytes', () => to.set(from));
}
