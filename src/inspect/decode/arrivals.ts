/**
 * When the bytes that wait in a stream decoder came: FPDUs that could only be decoded later still have the
 * time and the packet of the byte that completed them.
 */

/** Marks kept; beyond that neighbours are merged, and the earlier bytes take the time of the later ones. */
const MAX_MARKS = 256;

interface Mark {
  /** Bytes of the stream up to here came at this time, or earlier. */
  to: number;
  readonly time: number;
  readonly packet: number;
}

export class Arrivals {
  private marks: Mark[] = [];
  private total = 0;

  /** Bytes noted so far. */
  get received(): number {
    return this.total;
  }

  /** `octets` more have come. */
  note(octets: number, time: number, packet: number): void {
    this.total += octets;
    const last = this.marks.at(-1);
    if (last !== undefined && last.time === time && last.packet === packet) last.to = this.total;
    else this.marks.push({ to: this.total, time, packet });
    if (this.marks.length > MAX_MARKS) this.marks = this.marks.filter((_, i) => i % 2 === 1);
  }

  /** When the first `count` bytes of the stream were there; marks before that are forgotten. */
  at(count: number): Readonly<Mark> | undefined {
    let gone = 0;
    while (gone + 1 < this.marks.length && this.marks[gone]!.to < count) gone++;
    if (gone > 0) this.marks.splice(0, gone);
    return this.marks[0];
  }
}
