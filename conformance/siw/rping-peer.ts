/**
 * Stock rping in the guest as the suite's peer: the server when the probe connects, a client over and over
 * when it is the probe that listens. A program or a kernel that a case has killed is replaced, and counted.
 */
import type { Role } from '../probe/connection.ts';
import { openRping } from '../profiles/rping.ts';
import type { Address, Profile } from '../profiles/types.ts';
import { within, type PeerProcess } from './bench.ts';
import { SiwGuest, freePort } from './lab-guest.ts';

const SERVER_PORT = 7174;
/** Octets of rping's buffer: room for Reads and Writes of several FPDUs. */
const BUFFER = 4096;
const KILL_LIMIT_MS = 15_000;
const LISTEN_TRIES = 60;

/** Runs again when it ends: most cases end with an error, and rping with them. */
const LOG = '> /tmp/rping.log 2>&1';
const SERVER = `while true; do rping -s -P -p ${SERVER_PORT} -S ${BUFFER} ${LOG}; sleep 0.3; done`;
/** An rping that hangs is ended, so that the next case finds a fresh one. */
const client = (host: string, port: number): string =>
  `while true; do timeout 40 rping -c -a ${host} -p ${port} -S ${BUFFER} -C 1 > /tmp/rping.log 2>&1; ` +
  'sleep 0.1; done';

export class RpingPeer {
  readonly profile: Profile;
  /** Guests started because the one before was beyond help. */
  guestsLost = 0;
  /** Programs started because the one before stopped taking connections, in a guest that was well. */
  programsLost = 0;
  /** The messages of the kernels of lost guests. */
  readonly complaints: string[] = [];
  readonly #role: Role;
  readonly #listen: Address;
  #guest: SiwGuest;
  #program: PeerProcess | null = null;

  private constructor(role: Role, guest: SiwGuest, listen: Address) {
    this.#role = role;
    this.#guest = guest;
    this.#listen = listen;
    const port = (): number => this.#guest.forwardedPort(SERVER_PORT);
    // Another guest has other ports, so the target is asked for again by every case.
    const target = {
      host: '127.0.0.1',
      get port() {
        return port();
      },
    };
    this.profile = openRping({ target: role === 'initiator' ? target : undefined, listen, size: BUFFER });
  }

  /** A fresh guest with rping in the part that fits the probe's role. */
  static async open(role: Role): Promise<RpingPeer> {
    const listen = { host: '127.0.0.1', port: role === 'responder' ? await freePort() : 0 };
    const peer = new RpingPeer(role, await SiwGuest.boot(), listen);
    await peer.#start();
    return peer;
  }

  get guest(): SiwGuest {
    return this.#guest;
  }

  /** Bring the peer back: another process where that helps, else another guest. */
  async revive(): Promise<void> {
    const complaint = this.#guest.crash();
    if (complaint === null && (await this.#restart())) {
      this.programsLost++;
      return;
    }
    this.guestsLost++;
    this.complaints.push(complaint ?? 'rping could not be ended');
    await this.#guest.shutdown();
    this.#guest = await SiwGuest.boot();
    await this.#start();
  }

  /** End rping: what a case has done to the kernel may show only then. */
  async stop(): Promise<void> {
    await within(Promise.resolve(this.#program?.kill()), KILL_LIMIT_MS, () => 'rping').catch(() => undefined);
  }

  async close(): Promise<void> {
    await this.#guest.shutdown();
  }

  async #restart(): Promise<boolean> {
    try {
      await within(Promise.resolve(this.#program?.kill()), KILL_LIMIT_MS, () => 'rping');
      await this.#start();
      return true;
    } catch {
      return false;
    }
  }

  async #start(): Promise<void> {
    this.#program = this.#guest.spawn(
      this.#role === 'initiator' ? SERVER : client(this.#guest.hostAddress, this.#listen.port),
    );
    if (this.#role === 'responder') return;
    // Not tried by connecting: a connection without a Request is what one of the cases does to kill it.
    const waiting =
      `for i in $(seq ${LISTEN_TRIES}); do rdma resource show cm_id | grep -q LISTEN && exit 0; ` +
      'sleep 0.2; done; exit 1';
    const { status } = await this.#guest.run(waiting);
    if (status !== 0) throw new Error('rping -s does not listen');
  }
}
