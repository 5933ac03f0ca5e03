/**
 * Writes docs/state-machines.md from the state tables in src: `npx tsx scripts/docs-states.ts`. A table with a state or an input that has
 * no meaning below does not compile.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { MachineTable } from '../src/base/fsm.ts';
import { INITIATOR_TABLE, RESPONDER_TABLE, type InitiatorInput, type InitiatorState, type ResponderInput, type ResponderState } from '../src/mpa/startup.ts';
import { STREAM_TABLE, type StreamInput, type StreamState } from '../src/rdmap/stream-states.ts';
import { QP_TABLE, type QpInput, type QpState } from '../src/verbs/qp-states.ts';

/** Where the page is. */
export const STATES_PAGE: string = fileURLToPath(new URL('../docs/state-machines.md', import.meta.url));

const INTRODUCTION = `# State machines

<!-- Made by scripts/docs-states.ts from the tables in src; change those, not this. -->

Each machine is one literal table, and nothing else changes its state. What a table does not list (a dot below) is an error, never a silent no-op. The
tests try every input in every state. \`traceTransitions\` of \`iwarp\` shows the steps of a running program.
`;

interface Chapter<S extends string, I extends string> {
  readonly table: MachineTable<S, I>;
  /** Title, the name in the source, its file below the repository, and what to read first. */
  readonly title: string;
  readonly constant: string;
  readonly file: string;
  readonly clause: string;
  readonly states: Readonly<Record<S, string>>;
  readonly inputs: Readonly<Record<I, string>>;
}

const initiator: Chapter<InitiatorState, InitiatorInput> = {
  table: INITIATOR_TABLE,
  title: 'MPA initiator',
  constant: 'INITIATOR_TABLE',
  file: 'src/mpa/startup.ts',
  clause: 'RFC 5044 7.1.2, RFC 6581 4',
  states: {
    idle: 'nothing has been sent',
    'wait-reply': 'the Request is out',
    operational: 'an accepting Reply has come: FPDUs from here on',
    rejected: 'the Reply has R=1',
    failed: 'a bad frame, a time-out or the loss of the connection',
  },
  inputs: {
    start: 'TCP is connected: send the Request',
    'accepting-reply': 'a good Reply with R=0',
    'rejecting-reply': 'a good Reply with R=1',
    'bad-frame': 'wrong key, revision or length, or something that the Request ruled out',
    timeout: 'no whole Reply in time',
    lost: 'TCP ended',
  },
};

const responder: Chapter<ResponderState, ResponderInput> = {
  table: RESPONDER_TABLE,
  title: 'MPA responder',
  constant: 'RESPONDER_TABLE',
  file: 'src/mpa/startup.ts',
  clause: 'RFC 5044 7.1.2, RFC 6581 4',
  states: {
    'wait-request': 'TCP is connected',
    deciding: 'a good Request is here, and the program decides',
    operational: 'an accepting Reply is out: FPDUs from here on',
    rejected: 'a Reply with R=1 is out',
    failed: 'a bad frame, a time-out or the loss of the connection',
  },
  inputs: {
    request: 'a good Request',
    accept: 'the program accepts',
    reject: 'the program rejects, or the policy does',
    'bad-frame': 'wrong key, revision or length, or octets after the Request that may not be there',
    timeout: 'no whole Request in time',
    lost: 'TCP ended',
  },
};

const stream: Chapter<StreamState, StreamInput> = {
  table: STREAM_TABLE,
  title: 'RDMA stream',
  constant: 'STREAM_TABLE',
  file: 'src/rdmap/stream-states.ts',
  clause: 'RFC 5040 5 and 7, RFC 5041 6',
  states: {
    idle: 'made and not yet started',
    startup: 'MPA start-up frames under way',
    deciding: 'a frame waits for the program to accept, reject or confirm',
    operational: 'FPDUs both ways',
    draining: 'closing from our side; posted work still goes out',
    closing: 'our FIN is out, or goes out after the last octet',
    terminating: 'a Terminate was sent or received',
    leaving: 'never became operational, and is on its way out',
    closed: 'the end',
  },
  inputs: {
    start: 'the port is there',
    request: 'a frame to decide on has come',
    establish: 'start-up is complete',
    leave: 'rejected, failed or given up before it was established',
    close: 'the program closes',
    finish: 'nothing is left to send, or the peer has finished',
    terminate: 'an error found here, or a Terminate from the peer',
    'end-of-port': 'the port is gone',
  },
};

const queuePair: Chapter<QpState, QpInput> = {
  table: QP_TABLE,
  title: 'Queue pair',
  constant: 'QP_TABLE',
  file: 'src/verbs/qp-states.ts',
  clause: 'verbs draft 6.2 (requirements VERBS-021 to VERBS-058)',
  states: {
    idle: 'no connection; posted requests wait',
    rts: 'connected',
    closing: 'a close is under way; what was posted before it still completes',
    terminate: 'a Terminate was sent or received; new requests are flushed',
    error: 'the stream is gone; everything is flushed',
  },
  inputs: {
    attach: 'a connection is established',
    'llp-close': 'either side closes in order',
    terminate: 'a Terminate is sent or received',
    fail: 'the connection ended in any other way',
    'llp-closed': 'the close is complete',
    reset: '`modify` to Idle',
    'modify-error': '`modify` to Error',
  },
};

/** Mermaid takes no hyphen in a state's name. */
function stateName(state: string): string {
  return state.replaceAll('-', '_');
}

function diagram<S extends string, I extends string>(table: MachineTable<S, I>): string[] {
  const edges = new Map<string, string[]>();
  const ends: string[] = [];
  for (const [from, row] of Object.entries<Readonly<Partial<Record<I, S>>>>(table.transitions)) {
    const steps = Object.entries(row) as [I, S][];
    if (steps.length === 0) ends.push(from);
    for (const [input, to] of steps) {
      const edge = `${stateName(from)} --> ${stateName(to)}`;
      edges.set(edge, [...(edges.get(edge) ?? []), input]);
    }
  }
  const lines = [...edges].map(([edge, inputs]) => `  ${edge}: ${inputs.join(', ')}`);
  return ['stateDiagram-v2', `  [*] --> ${stateName(table.initial)}`, ...lines, ...ends.map((state) => `  ${stateName(state)} --> [*]`)];
}

function matrix<S extends string, I extends string>(table: MachineTable<S, I>, states: readonly S[], inputs: readonly I[]): string[] {
  const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  const body = states.map((state) => row([`**${state}**`, ...inputs.map((input) => table.transitions[state][input] ?? '·')]));
  return [row(['state', ...inputs]), row(['---', ...inputs.map(() => '---')]), ...body];
}

function chapter<S extends string, I extends string>(of: Chapter<S, I>): string {
  const states = Object.keys(of.table.transitions) as S[];
  const inputs = Object.keys(of.inputs) as I[];
  return [
    `## ${of.title}`,
    '',
    `\`${of.constant}\` in [${of.file}](../${of.file}); read ${of.clause} first.`,
    '',
    '```mermaid',
    ...diagram(of.table),
    '```',
    '',
    ...matrix(of.table, states, inputs),
    '',
    ...states.map((state) => `- **${state}**: ${of.states[state]}`),
    '',
    'Inputs:',
    '',
    ...inputs.map((input) => `- \`${input}\`: ${of.inputs[input]}`),
    '',
  ].join('\n');
}

/** The page as it should be. */
export function renderStatesPage(): string {
  return [INTRODUCTION, chapter(initiator), chapter(responder), chapter(stream), chapter(queuePair)].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(STATES_PAGE, renderStatesPage());
