/**
 * One proxied connection: two ports, and between them two lanes that pass octets, ends, resets and
 * back-pressure on, each under its fault script. No RDMA ends here: what the lanes pass is octets.
 *
 * Read first: transport/port.ts.
 */
import { Alarm } from '../../src/base/alarm.ts';
import type { Scheduler } from '../../src/base/clock.ts';
import { IwarpError } from '../../src/base/errors.ts';
import type { Direction } from '../../src/inspect/decode/types.ts';
import type { Port, PortHandler } from '../../src/transport/port.ts';
import type { FaultScript, Operation } from './fault-script.ts';

/** Sees what passes, in the order in which it passes. */
export interface RelayWatcher {
  /** Octets that came from one end, before any fault; borrowed. */
  came(direction: Direction, bytes: Uint8Array, start: number, end: number): void;
  /** Octets that go to the other end. */
  goes(direction: Direction, bytes: Uint8Array): void;
  /** A FIN came from one end. */
  endCame(direction: Direction): void;
  /** A FIN goes to the other end. */
  endGoes(direction: Direction): void;
  say(direction: Direction, position: number, text: string): void;
  /** Last call: both directions have ended, or the connection broke, seen from this direction's sender. */
  over(error: Error | undefined, direction: Direction): void;
}

interface RelayOptions {
  readonly scripts: readonly [FaultScript, FaultScript];
  readonly watcher: RelayWatcher;
  readonly scheduler: Scheduler;
  /** Milliseconds without any octet after which both ends are reset; 0 for never. */
  readonly quietMs: number;
  /** Called once, when both ports are closed. */
  readonly done: (how: 'ended' | 'broken' | 'quiet') => void;
}

/**
 * Octets of one direction in our hands at which its sender is no longer read, and at which it is read again.
 */
const HIGH_OCTETS = 1 << 20;
const LOW_OCTETS = 1 << 18;
/** How long a reset waits for octets in front of it to be taken by a slow receiver. */
const RESET_WAIT_MS = 1000;

/** A step of the script, or an event of the source: it finishes, or breaks off. */
type Step = Operation | { readonly do: 'end' } | { readonly do: 'break'; readonly error: Error };

/** One direction. */
class Lane {
  readonly #relay: Relay;
  readonly #direction: Direction;
  readonly #script: FaultScript;
  readonly #source: Port;
  readonly #sink: Port;
  readonly #waiting: Step[] = [];
  #state: 'flowing' | 'delayed' | 'stalled' | 'ended' = 'flowing';
  #paused = false;
  /** Octets in `waiting`, and given to the sink but not yet to the network. */
  #queued = 0;
  #unsent = 0;
  readonly #delayed: Alarm;
  readonly #patience: Alarm;
  #whenSent: (() => void) | undefined;

  constructor(relay: Relay, direction: Direction, script: FaultScript, source: Port, sink: Port) {
    this.#relay = relay;
    this.#direction = direction;
    this.#script = script;
    this.#source = source;
    this.#sink = sink;
    this.#delayed = new Alarm(relay.scheduler);
    this.#patience = new Alarm(relay.scheduler);
  }

  take(bytes: Uint8Array, start: number, end: number): void {
    if (this.#state === 'ended') return;
    this.#relay.watcher.came(this.#direction, bytes, start, end);
    this.#add(this.#script.push(bytes, start, end));
    this.#watchPatience();
  }

  /** The source has finished. */
  end(): void {
    if (this.#state === 'ended') return;
    this.#relay.watcher.endCame(this.#direction);
    this.#add([...this.#script.end(), { do: 'end' }]);
  }

  /** The source is gone: what it sent before still passes, if it can. */
  broken(error: Error): void {
    if (this.#state === 'flowing' || this.#state === 'delayed')
      this.#add([...this.#script.end(), { do: 'break', error }]);
    else this.#relay.reset(this.#direction, error);
  }

  /** Call `task` when the sink has handed everything to the network, but wait for a limited time only. */
  whenSent(task: () => void): void {
    if (this.#unsent === 0) {
      task();
      return;
    }
    const cancel = this.#relay.scheduler.at(this.#relay.scheduler.now() + RESET_WAIT_MS, () => this.#sent());
    this.#whenSent = () => {
      cancel();
      task();
    };
  }

  /** Pass nothing more. */
  stop(): void {
    this.#state = 'ended';
    this.#waiting.length = 0;
    this.#queued = 0;
    this.#delayed.stop();
    this.#patience.stop();
    this.#setPause();
  }

  #add(operations: readonly Step[]): void {
    for (const operation of operations) {
      this.#waiting.push(operation);
      if (operation.do === 'pass') this.#queued += operation.bytes.length;
    }
    this.#pump();
    this.#setPause();
  }

  #pump(): void {
    while (this.#state === 'flowing') {
      const operation = this.#waiting.shift();
      if (operation === undefined) return;
      switch (operation.do) {
        case 'pass':
          this.#send(operation.bytes);
          break;
        case 'say':
          this.#relay.watcher.say(this.#direction, operation.position, operation.text);
          break;
        case 'delay':
          this.#delay(operation.ms);
          break;
        case 'stall':
          this.#state = 'stalled';
          break;
        case 'reset':
          this.#relay.reset(this.#direction, new IwarpError('ERR_CONNECTION_RESET', 'reset by a fault'));
          break;
        case 'break':
          this.#relay.reset(this.#direction, operation.error);
          break;
        default:
          this.stop();
          this.#relay.watcher.endGoes(this.#direction);
          this.#sink.end();
      }
    }
  }

  #send(bytes: Uint8Array): void {
    this.#queued -= bytes.length;
    this.#unsent += bytes.length;
    this.#relay.watcher.goes(this.#direction, bytes);
    this.#sink.write([bytes], 1, () => {
      this.#unsent -= bytes.length;
      this.#relay.active();
      if (this.#unsent === 0) this.#sent();
      this.#setPause();
    });
  }

  #sent(): void {
    const task = this.#whenSent;
    this.#whenSent = undefined;
    task?.();
  }

  #delay(ms: number): void {
    this.#state = 'delayed';
    this.#delayed.set(ms, () => {
      this.#state = 'flowing';
      this.#pump();
      this.#setPause();
    });
  }

  /** An FPDU that waits for others to overtake it goes after a while without them. */
  #watchPatience(): void {
    const { patience } = this.#script;
    if (patience === undefined || this.#patience.isSet) return;
    this.#patience.set(patience, () => this.#add(this.#script.release()));
  }

  /**
   * Back-pressure: a receiver that does not read, or a fault, is felt by the sender, though not before our
   * buffers are full, as those of a network would be. Until then its leaving is noticed.
   */
  #setPause(): void {
    const pause = this.#queued + this.#unsent > (this.#paused ? LOW_OCTETS : HIGH_OCTETS);
    if (pause === this.#paused) return;
    this.#paused = pause;
    if (pause) this.#source.pause();
    else this.#source.resume();
  }
}

export class Relay {
  readonly watcher: RelayWatcher;
  readonly scheduler: Scheduler;
  readonly #ports: readonly [Port, Port];
  readonly #lanes: readonly [Lane, Lane];
  readonly #options: RelayOptions;
  readonly #closed: [boolean, boolean] = [false, false];
  #how: 'ended' | 'broken' | 'quiet' = 'ended';
  #reported = false;
  readonly #quiet: Alarm;
  #lastActive: number;

  /** `client` is the accepted port, `server` the connected one. */
  constructor(client: Port, server: Port, options: RelayOptions) {
    this.watcher = options.watcher;
    this.scheduler = options.scheduler;
    this.#options = options;
    this.#ports = [client, server];
    this.#lanes = [
      new Lane(this, 0, options.scripts[0], client, server),
      new Lane(this, 1, options.scripts[1], server, client),
    ];
    this.#quiet = new Alarm(this.scheduler);
    this.#lastActive = this.scheduler.now();
  }

  /** Begin to relay. */
  start(): void {
    this.#watchQuiet(this.#options.quietMs);
    for (const direction of [0, 1] as const) this.#ports[direction].attach(this.#handler(direction));
  }

  /** Something has moved. */
  active(): void {
    this.#lastActive = this.scheduler.now();
  }

  /** Break both ends off, after the octets that have been passed on. */
  reset(direction: Direction, error: Error): void {
    if (this.#how === 'ended') this.#how = 'broken';
    for (const lane of this.#lanes) lane.stop();
    this.#tellOver(error, direction);
    this.#lanes[0].whenSent(() => this.#ports[1].reset());
    this.#lanes[1].whenSent(() => this.#ports[0].reset());
  }

  #handler(direction: Direction): PortHandler {
    const lane = this.#lanes[direction];
    return {
      onData: (bytes, start, end) => {
        this.active();
        lane.take(bytes, start, end);
      },
      onEnd: () => {
        this.active();
        lane.end();
      },
      onClose: (error) => this.#portClosed(direction, error),
    };
  }

  #portClosed(direction: Direction, error: Error | undefined): void {
    this.#closed[direction] = true;
    if (this.#closed[0] && this.#closed[1]) {
      this.#quiet.stop();
      if (error !== undefined && this.#how === 'ended') this.#how = 'broken';
      this.#tellOver(error, direction);
      this.#options.done(this.#how);
    } else if (error !== undefined) this.#lanes[direction].broken(error);
  }

  #tellOver(error: Error | undefined, direction: Direction): void {
    if (this.#reported) return;
    this.#reported = true;
    this.watcher.over(error, direction);
  }

  #watchQuiet(ms: number): void {
    if (this.#options.quietMs === 0) return;
    this.#quiet.set(ms, () => {
      const left = this.#lastActive + this.#options.quietMs - this.scheduler.now();
      if (left > 0) {
        this.#watchQuiet(left);
        return;
      }
      this.#how = 'quiet';
      this.reset(0, new IwarpError('ERR_TIMEOUT', 'nothing has crossed for too long'));
    });
  }
}
