/**
 * The log of changes: each change of a key is appended before it is answered, so that a killed process loses
 * no change that it has acknowledged. When the store is made, the log is read, cut where it breaks off, and
 * written anew with the keys that are still there.
 *
 * A record, little-endian: CRC32c u32 over the rest; length u32 of the value, 2^32 - 1 for a removed key;
 * expiry f64; flags u32; length u16 of the key; kind u8; one byte, zero; key; value.
 */
import { Buffer } from 'node:buffer';
import { closeSync, fdatasyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { IwarpError } from '../base/errors.ts';
import { defaultCrc32cEngine } from '../crc32c/engine.ts';
import type { Keyspace } from './keyspace.ts';
import { KIND, type Kind } from './layout.ts';
import type { Item } from './table.ts';

const HEADER = 24;
const REMOVED = 0xffff_ffff;
const FILE = 'iwarp-kv.log';
/** The log is written anew when it has grown to this many times of what it began with, and this much more. */
const GROWTH = 4;
const LEAST_GROWTH = 16 * 2 ** 20;

/** An open log. */
export interface ChangeLog {
  close(): void;
}

/**
 * Read the log of `folder` into `keys`, then follow their changes.
 *
 * @throws ERR_ACCESS
 */
export function openLog(folder: string, keys: Keyspace, fsync: boolean): ChangeLog {
  try {
    mkdirSync(folder, { recursive: true });
    const path = join(folder, FILE);
    load(path, keys);
    return new Log(path, keys, fsync);
  } catch (cause) {
    if (cause instanceof IwarpError) throw cause;
    throw new IwarpError('ERR_ACCESS', `options.persist: cannot use ${folder}: ${(cause as Error).message}`, {
      cause,
    });
  }
}

class Log implements ChangeLog {
  readonly #path: string;
  readonly #keys: Keyspace;
  readonly #fsync: boolean;
  #file = -1;
  #length = 0;
  #first = 0;

  constructor(path: string, keys: Keyspace, fsync: boolean) {
    this.#path = path;
    this.#keys = keys;
    this.#fsync = fsync;
    this.#rewrite();
    keys.onChange((key, item) => this.#append(key, item));
  }

  close(): void {
    // Words of counters change without a report.
    this.#rewrite();
    closeSync(this.#file);
    this.#file = -1;
  }

  #append(key: Uint8Array, item: Omit<Item, 'version'> | null): void {
    if (this.#file < 0) return;
    this.#write(encode(key, item));
    if (this.#fsync) fdatasyncSync(this.#file);
    if (this.#length > GROWTH * this.#first + LEAST_GROWTH) this.#rewrite();
  }

  #write(record: Buffer): void {
    for (let at = 0; at < record.length; ) at += writeSync(this.#file, record, at);
    this.#length += record.length;
  }

  /** Write all present keys to a new file that takes the old one's place when it is whole. */
  #rewrite(): void {
    const old = this.#file;
    const next = `${this.#path}.new`;
    this.#file = openSync(next, 'w', 0o600);
    this.#length = 0;
    for (let bucket = 0; bucket < this.#keys.table.geometry.buckets; bucket++)
      for (const key of this.#keys.table.keysOf(bucket)) {
        const [kept, shown] = [this.#keys.table.peek(key), this.#keys.peek(key)];
        if (kept !== null && shown !== null) this.#write(encode(key, { ...shown, kind: kept.kind }));
      }
    fdatasyncSync(this.#file);
    renameSync(next, this.#path);
    this.#first = this.#length;
    if (old >= 0) closeSync(old);
  }
}

function encode(key: Uint8Array, item: Omit<Item, 'version'> | null): Buffer {
  const value = item?.value ?? new Uint8Array(0);
  const record = Buffer.alloc(HEADER + key.length + value.length);
  record.writeUInt32LE(item === null ? REMOVED : value.length, 4);
  record.writeDoubleLE(item?.expiry ?? 0, 8);
  record.writeUInt32LE(item?.flags ?? 0, 16);
  record.writeUInt16LE(key.length, 20);
  record.writeUInt8(item?.kind ?? 0, 22);
  record.set(key, HEADER);
  record.set(value, HEADER + key.length);
  record.writeUInt32LE(defaultCrc32cEngine().update(0, record, 4, record.length), 0);
  return record;
}

function load(path: string, keys: Keyspace): void {
  let log: Buffer;
  try {
    log = readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  for (let at = 0; at + HEADER <= log.length; ) {
    const length = log.readUInt32LE(at + 4);
    const keyEnd = at + HEADER + log.readUInt16LE(at + 20);
    const end = keyEnd + (length === REMOVED ? 0 : length);
    // The last record of a process that was killed may be cut; nothing behind it was acknowledged.
    if (end > log.length || defaultCrc32cEngine().update(0, log, at + 4, end) !== log.readUInt32LE(at))
      return;
    const key = Buffer.from(log.subarray(at + HEADER, keyEnd));
    if (length === REMOVED) keys.delete(key);
    else restore(keys, key, log, at, keyEnd, end);
    at = end;
  }
}

function restore(keys: Keyspace, key: Uint8Array, log: Buffer, at: number, from: number, to: number): void {
  const expiry = log.readDoubleLE(at + 8);
  if (expiry !== 0 && expiry <= keys.now()) return void keys.delete(key);
  const kind = log.readUInt8(at + 22) as Kind;
  const value = Buffer.from(log.subarray(from, to));
  keys.put(key, value, kind === KIND.COUNTER ? KIND.STRING : kind, expiry, log.readUInt32LE(at + 16));
  if (kind === KIND.COUNTER) keys.counter(key);
}
