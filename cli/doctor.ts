/**
 * `iwarp doctor`: look at a server step by step, from its name to the round trip of an RDMA Read, and say for
 * each step that fails what to do about it.
 */
import { lookup } from 'node:dns/promises';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { parseArgs } from 'node:util';
import { connect } from '../src/api/connect.ts';
import type { Connection } from '../src/api/connection.ts';
import { checkInteger, IwarpError } from '../src/base/errors.ts';
import type { ConnectionPolicy } from '../src/mpa/policy.ts';
import { interfaceMtu } from '../src/transport/interface-mtu.ts';
import { printable, quoted } from './support/printable.ts';
import { PROCESS_IO, type ToolIo } from './support/tool.ts';

const USAGE = `usage: iwarp doctor HOST [PORT] [--tls] [--timeout MS] [--json]
  PORT           the port of the server (4711)
  --tls          the server speaks TLS below iWARP
  --timeout MS   how long each step may take (3000)
  --json         a line of JSON for each step

It connects as any client does, and closes in order: the server's program sees a connection that asks for
nothing.
`;

const PORT = 4711;
const TIMEOUT = 3000;
const ROUND_TRIPS = 11;
const ETHERNET_MTU = 1500;
/** Bytes of another protocol that are shown. */
const SHOWN = 48;

/** A step: `good` is well, `odd` works with a limit, `bad` stops here. */
interface Finding {
  readonly step: 'name' | 'port' | 'start-up' | 'peer' | 'latency' | 'mtu' | 'close';
  readonly state: 'good' | 'odd' | 'bad';
  readonly text: string;
  /** What to do about it. */
  readonly hint?: string;
}

interface Patient {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  readonly timeout: number;
}

export async function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  let patient: Patient & { readonly json: boolean };
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        tls: { type: 'boolean', default: false },
        timeout: { type: 'string', default: String(TIMEOUT) },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h' },
      },
    });
    if (values.help === true) {
      io.out(USAGE);
      return 0;
    }
    const [host, port = String(PORT), ...more] = positionals;
    if (host === undefined || host === '' || more.length > 0)
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'give a host, and a port if it is not 4711');
    patient = {
      host,
      port: checkInteger('PORT', Number(port), 1, 65_535),
      tls: values.tls,
      timeout: checkInteger('--timeout', Number(values.timeout), 1, 0x7fff_ffff),
      json: values.json,
    };
  } catch (error) {
    io.err(`doctor: ${printable((error as Error).message)}\n${USAGE}`);
    return 2;
  }
  let bad = false;
  for await (const finding of examine(patient)) {
    bad ||= finding.state === 'bad';
    io.out(patient.json ? `${JSON.stringify(finding)}\n` : lineOf(finding));
  }
  return bad ? 1 : 0;
}

const WORDS = { good: 'ok', odd: 'note', bad: 'FAILED' } as const;

function lineOf({ step, state, text, hint }: Finding): string {
  const line = `${WORDS[state].padEnd(6)} ${step.padEnd(8)} ${printable(text)}\n`;
  return hint === undefined ? line : `${line}       ${''.padEnd(8)} hint: ${hint}\n`;
}

/** The steps one after the other; after a bad one nothing follows that needs it. */
async function* examine(patient: Patient): AsyncGenerator<Finding> {
  const name = await findName(patient);
  yield name;
  if (name.state === 'bad') return;
  const port = await findPort(patient);
  yield port;
  if (port.state === 'bad') return;
  const { findings, connection } = await startUp(patient);
  yield* findings;
  if (connection === null) return;
  yield aboutPeer(connection);
  yield await latency(connection, patient);
  yield aboutMtu(connection);
  yield await close(connection, patient);
}

async function findName({ host }: Patient): Promise<Finding> {
  try {
    const found = await lookup(host, { all: true });
    const text = `${host} is ${found.map(({ address }) => address).join(', ')}`;
    return { step: 'name', state: 'good', text };
  } catch (error) {
    return {
      step: 'name',
      state: 'bad',
      text: (error as Error).message,
      hint: 'the name is not known here: check its spelling, /etc/hosts and the DNS, or give an address',
    };
  }
}

/** What stands behind a failed TCP connection, by the system's code. */
const TCP_HINTS: Readonly<Record<string, string>> = {
  ECONNREFUSED:
    'nothing listens at that address and port: start the server, compare its port, and see whether it ' +
    'listens at 127.0.0.1 only (`ss -ltn` on its machine)',
  ECONNRESET: 'something between the two machines refuses the connection: look at firewalls and proxies',
  EHOSTUNREACH: 'no machine answers at that address: check the address and the network',
  ENETUNREACH: 'there is no route to that address: check the routes of this machine (`ip route`)',
  ETIMEDOUT:
    'no answer at all: a firewall drops the packets, the machine is off, or the address is another one',
  EACCES: 'this process may not open such connections: look at the firewall or sandbox of this machine',
};

/** The answer of a port to some bytes. */
interface Answer {
  readonly ms: number;
  readonly error: NodeJS.ErrnoException | null;
  readonly bytes: Buffer;
}

/** Connect by TCP; with `send` also send that, and wait for the first bytes. */
function ask({ host, port, timeout }: Patient, send: Buffer | null): Promise<Answer> {
  const began = performance.now();
  return new Promise((resolve) => {
    const socket = connectTcp({ host, port });
    const end = (error: NodeJS.ErrnoException | null, bytes: Buffer = Buffer.alloc(0)): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ ms: performance.now() - began, error, bytes });
    };
    const late = (): void => end(Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' }));
    const timer = setTimeout(late, timeout);
    socket.on('error', end);
    socket.on('connect', () => (send === null ? end(null) : socket.write(send)));
    socket.on('data', (bytes) => end(null, bytes));
    socket.on('close', () => end(null));
  });
}

async function findPort(patient: Patient): Promise<Finding> {
  const { ms, error } = await ask(patient, null);
  if (error === null)
    return { step: 'port', state: 'good', text: `port ${patient.port} answers after ${ms.toFixed(1)} ms` };
  const hint = TCP_HINTS[error.code ?? ''] ?? 'the system gives the reason above';
  return { step: 'port', state: 'bad', text: `port ${patient.port}: ${error.message}`, hint };
}

/** Ways of start-up that older or narrower peers understand, and how a program asks for each. */
const OTHER_WAYS: readonly (readonly [words: string, policy: Partial<ConnectionPolicy>, cure: string])[] = [
  ['MPA revision 1', { mpaRevision: 1 }, 'policy: { mpaRevision: 1 }'],
  ['the client-server model', { peerToPeer: false }, 'policy: { peerToPeer: false }'],
  ['no CRC', { crc: 'off' }, "policy: { crc: 'off' }"],
];

interface Started {
  readonly findings: readonly Finding[];
  readonly connection: Connection | null;
}

const attempt = (
  { host, port, tls, timeout }: Patient,
  policy: Partial<ConnectionPolicy>,
): Promise<Connection> => connect({ host, port, policy, connectTimeout: timeout, ...(tls && { tls: true }) });

async function startUp(patient: Patient): Promise<Started> {
  try {
    const connection = await attempt(patient, {});
    return { findings: [agreed(connection)], connection };
  } catch (error) {
    const failure = error as IwarpError;
    const first = { step: 'start-up', state: 'bad', text: failure.message } as const;
    if (failure.code === 'ERR_REJECTED') {
      const hint =
        'the server speaks iWARP, and its program refuses this client: look at its onRequest, the private ' +
        'data that it wants, and its limits';
      return { findings: [{ ...first, hint }], connection: null };
    }
    for (const [words, policy, cure] of patient.tls ? [] : OTHER_WAYS) {
      const connection = await attempt(patient, policy).catch(() => null);
      if (connection === null) continue;
      const odd = { ...first, state: 'odd', hint: `it works with ${words}: set ${cure}` } as const;
      return { findings: [odd, agreed(connection)], connection };
    }
    return { findings: [{ ...first, hint: await otherProtocol(patient) }], connection: null };
  }
}

/** A request that no other protocol understands. */
const STRANGE = Buffer.from('MPA ID Req Frame\x00\x01\x00\x00', 'latin1');

const shown = (bytes: Buffer): string => quoted(bytes.subarray(0, SHOWN).toString('latin1'));

/** True if the port answers as TLS does, whatever its certificate is. */
function answersTls({ host, port, timeout }: Patient): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTls({ host, port, rejectUnauthorized: false });
    const end = (answer: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer);
    };
    const timer = setTimeout(end, timeout, false);
    socket.on('secureConnect', () => end(true));
    // An alert is an answer too: TLS that wants a certificate, or another version.
    socket.on('error', ({ message }) => end(/alert/i.test(message)));
    socket.on('close', () => end(false));
  });
}

const SPEAKS_TLS = 'the port speaks TLS: try --tls, and `tls` in the client';

/** What speaks at a port that does not speak iWARP. */
async function otherProtocol(patient: Patient): Promise<string> {
  if (patient.tls)
    return (await answersTls(patient))
      ? 'the port speaks TLS: its certificate is not trusted here (NODE_EXTRA_CA_CERTS), it wants one of ' +
          'the client, or there is no iWARP inside'
      : 'the port does not speak TLS: try without --tls';
  const { bytes, error } = await ask(patient, STRANGE);
  if (error?.code === 'ETIMEDOUT')
    return (
      'the port takes the connection and says nothing: its program hangs or is stopped, or it speaks ' +
      'another protocol and waits for that'
    );
  if (bytes[0] === 0x15 || bytes[0] === 0x16) return SPEAKS_TLS;
  if (bytes.length > 0) return `the port speaks another protocol, its first bytes are ${shown(bytes)}`;
  if (await answersTls(patient)) return SPEAKS_TLS; // OpenSSL has no answer to other bytes
  return 'the port closes the connection: another protocol, or a server without room (see its onFailure)';
}

const yes = (on: boolean): string => (on ? 'on' : 'off');

function agreed({ negotiated }: Connection): Finding {
  const { revision, enhanced, crc, sendMarkers, receiveMarkers, ird, ord, rtr } = negotiated;
  const markers = sendMarkers || receiveMarkers;
  const text =
    `MPA revision ${revision}${enhanced ? ', enhanced' : ''}; CRC ${yes(crc)}, markers ${yes(markers)}; ` +
    `${ord} Reads of ours and ${ird} of the peer at a time; ready by ${rtr ?? 'the first message'}`;
  if (ord > 0) return { step: 'start-up', state: 'good', text };
  return {
    step: 'start-up',
    state: 'odd',
    text,
    hint: 'the peer serves no Reads: it has to set its IRD above 0 where a client is to read or do atomics',
  };
}

function aboutPeer({ peer, flowControlled }: Connection): Finding {
  if (peer === undefined)
    return {
      step: 'peer',
      state: 'odd',
      text: 'another implementation: no credits, no requests, no messages above its receives',
      hint: 'if it is this package, its server has `credits: false` or `extensions: false`',
    };
  const more = peer.extensions ? 'with Immediate Data and atomics' : 'without Immediate Data and atomics';
  const flow = flowControlled ? 'credits' : 'no credits';
  const text = `this package; messages of up to ${peer.maxMessageSize} bytes by one Send, ${flow}, ${more}`;
  return { step: 'peer', state: 'good', text };
}

async function latency(connection: Connection, { timeout }: Patient): Promise<Finding> {
  if (connection.negotiated.ord === 0)
    return { step: 'latency', state: 'odd', text: 'cannot be measured: it needs an RDMA Read' };
  const times: number[] = [];
  try {
    for (let i = 0; i < ROUND_TRIPS; i++) times.push(await connection.rtt({ timeout }));
  } catch (error) {
    return {
      step: 'latency',
      state: 'bad',
      text: (error as Error).message,
      hint:
        (error as IwarpError).code === 'ERR_TIMEOUT'
          ? 'start-up works and a Read has no answer: the server hangs, or large packets are lost on the way'
          : "the peer refuses Reads of zero length: use heartbeat with foreign: 'write' towards it",
    };
  }
  const [least, median] = times.toSorted((a, b) => a - b).filter((_, i) => i % (ROUND_TRIPS >> 1) === 0);
  const text = `an RDMA Read there and back: ${median!.toFixed(3)} ms, at best ${least!.toFixed(3)} ms`;
  return { step: 'latency', state: 'good', text };
}

function aboutMtu({ localAddress: { address } }: Connection): Finding {
  const mtu = interfaceMtu(address);
  if (mtu === undefined)
    return { step: 'mtu', state: 'odd', text: `the MTU of the interface with ${address} is not known here` };
  const text = `the interface with ${address} has an MTU of ${mtu} bytes`;
  if (mtu >= ETHERNET_MTU) return { step: 'mtu', state: 'good', text };
  return {
    step: 'mtu',
    state: 'odd',
    text,
    hint: 'below that of Ethernet: each FPDU is small, and bulk costs more; look at tunnels on the path',
  };
}

async function close(connection: Connection, { timeout }: Patient): Promise<Finding> {
  const { cause } = await connection.close({ timeout });
  if (cause === 'graceful') return { step: 'close', state: 'good', text: 'closed in order' };
  return {
    step: 'close',
    state: 'odd',
    text: `the close ended with ${cause}`,
    hint: 'the server does not answer a close in time: its program keeps its messages, or hangs',
  };
}
