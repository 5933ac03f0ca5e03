/** The exports of a server: names and their devices. */
import { Buffer } from 'node:buffer';
import { checkObject, IwarpError } from '../base/errors.ts';
import { checkDevice, type BlockDevice } from './device.ts';
import { inTime } from './requests.ts';
import { MAX_NAME_LENGTH } from './wire.ts';

/** A device, or a function that opens one for a connection; such a device is closed with the connection. */
export type ExportSource = BlockDevice | ((name: string) => Promise<BlockDevice>);

/** An export that a connection uses. */
export interface OpenExport {
  readonly name: string;
  readonly device: BlockDevice;
  /** Called once when the connection has ended. */
  readonly release: () => Promise<void>;
}

const nothing = (): Promise<void> => Promise.resolve();

export class ExportTable {
  readonly #sources = new Map<string, ExportSource>();
  readonly #patience: number;

  /**
   * Functions that open devices, and the devices' `close`, have `patience` milliseconds.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  constructor(exports: Readonly<Record<string, ExportSource>>, patience: number) {
    this.#patience = patience;
    checkObject('options.exports', exports);
    for (const [name, source] of Object.entries(exports)) {
      const length = Buffer.byteLength(name);
      if (length > MAX_NAME_LENGTH || name.includes('\0'))
        throw new IwarpError(
          'ERR_INVALID_ARGUMENT',
          `options.exports: a name has at most ${MAX_NAME_LENGTH} bytes of UTF-8 and no NUL`,
        );
      if (typeof source !== 'function') checkDevice(`options.exports[${JSON.stringify(name)}]`, source);
      this.#sources.set(name, source);
    }
    if (this.#sources.size === 0)
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.exports must name at least one device');
  }

  get names(): readonly string[] {
    return [...this.#sources.keys()];
  }

  /** Devices that are there before any connection. */
  get devices(): readonly BlockDevice[] {
    return [...this.#sources.values()].filter((source) => typeof source !== 'function');
  }

  /** The export of this name; the empty name also means the only export. Null if there is none. */
  async open(asked: string): Promise<OpenExport | null> {
    const only = this.#sources.size === 1 ? this.names[0]! : '';
    const name = asked === '' && !this.#sources.has('') ? only : asked;
    const source = this.#sources.get(name);
    if (source === undefined) return null;
    if (typeof source !== 'function') return { name, device: source, release: nothing };
    const opening = openDevice(name, source);
    try {
      const device = await inTime(opening, this.#patience);
      return { name, device, release: () => this.#close(device) };
    } catch {
      // The program's own function has refused, or has not answered: for the client the export does not
      // exist. A device that comes later has no client.
      opening.then((device) => this.#close(device)).catch(() => undefined);
      return null;
    }
  }

  async #close(device: BlockDevice): Promise<void> {
    await inTime(closeDevice(device), this.#patience);
  }
}

/** Async, so that a function that throws rejects. */
async function openDevice(
  name: string,
  source: (name: string) => Promise<BlockDevice>,
): Promise<BlockDevice> {
  return checkDevice(`the device of export ${JSON.stringify(name)}`, await source(name));
}

async function closeDevice(device: BlockDevice): Promise<void> {
  await device.close?.();
}
