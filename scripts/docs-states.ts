/**
 * Writes docs/state-machines.md from the state tables in src: `npx tsx scripts/docs-states.ts`. A table with
 * a state or an input that has no meaning below does not compile.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import {
  CONNECTION_TABLE,
  type ConnectionInput,
  type ConnectionState,
} from '../src/api/connection-states.ts';
import {
  SERVER_TABLE,
  type ServerInput as PromiseServerInput,
  type ServerState as PromiseServerState,
} from '../src/api/server-states.ts';
import type { MachineTable } from '../src/base/fsm.ts';
import { MEMBER_TABLE, type MemberInput, type MemberState } from '../src/client/states.ts';
import {
  ACTIVE_TABLE,
  LISTENER_TABLE,
  PASSIVE_TABLE,
  type ActiveInput,
  type ActiveState,
  type ListenerInput,
  type ListenerState,
  type PassiveInput,
  type PassiveState,
} from '../src/cm/states.ts';
import { SLOT_TABLE, type SlotInput, type SlotState } from '../src/engine/listener-limits.ts';
import {
  ENGINE_LISTENER_TABLE,
  ENGINE_TABLE,
  type EngineListenerInput,
  type EngineListenerState,
  type EngineThreadInput,
  type EngineThreadState,
} from '../src/engine/proxy/states.ts';
import {
  INITIATOR_TABLE,
  RESPONDER_TABLE,
  type InitiatorInput,
  type InitiatorState,
  type ResponderInput,
  type ResponderState,
} from '../src/mpa/startup.ts';
import {
  CLIENT_NEGOTIATION_TABLE,
  SERVER_NEGOTIATION_TABLE,
  type ClientInput,
  type ClientState,
  type ServerInput,
  type ServerState,
} from '../src/nbd/negotiation.ts';
import {
  CHANNEL_TABLE,
  DIRECTION_TABLE,
  type ChannelInput,
  type DirectionInput,
  type DirectionState,
} from '../src/rsocket/states.ts';
import { MODE_TABLE, SDP_TABLE, type ModeInput, type SdpInput, type SdpState } from '../src/sdp/states.ts';
import type { SdpMode } from '../src/sdp/wire.ts';
import type { ChannelState } from '../src/sockets/byte-channel.ts';
import { EXTENDED_TABLE, type ExtendedInput, type ExtendedState } from '../src/sockets/extended/states.ts';
import {
  SOCKET_SERVER_TABLE,
  type SocketServerInput,
  type SocketServerState,
} from '../src/sockets/server-states.ts';
import { SHARED_TABLE, type SharedInput, type SharedState } from '../src/shared/states.ts';
import { QPIP_TABLE, type QpipInput, type QpipState } from '../src/qpip/states.ts';
import { STREAM_TABLE, type StreamInput, type StreamState } from '../src/stream/states.ts';
import { SHM_TABLE, type ShmInput, type ShmState } from '../src/shm/states.ts';
import { TRP_TABLE, type TrpInput, type TrpState } from '../src/trp/states.ts';
import {
  DATAGRAM_QP_TABLE,
  type DatagramQpInput,
  type DatagramQpState,
} from '../src/verbs/datagram-qp-states.ts';
import { QP_TABLE, type QpInput, type QpState } from '../src/verbs/qp-states.ts';

/** Where the page is. */
export const STATES_PAGE: string = fileURLToPath(new URL('../docs/state-machines.md', import.meta.url));

const INTRODUCTION = `# State machines

<!-- Made by scripts/docs-states.ts from the tables in src; change those, not this. -->

Each machine is one literal table, and nothing else changes its state. What a table does not list (a dot
below) is an error, never a silent no-op. The tests try every input in every state. \`traceTransitions\` of
\`iwarp\` shows the steps of a running program.
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
    operational: 'an accepting Reply has come: FPDUs follow',
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
    operational: 'an accepting Reply is out: FPDUs follow',
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
  file: 'src/stream/states.ts',
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
    closing: 'a close is under way; earlier work still completes',
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

const activeConnection: Chapter<ActiveState, ActiveInput> = {
  table: ACTIVE_TABLE,
  title: 'Active connection',
  constant: 'ACTIVE_TABLE',
  file: 'src/cm/states.ts',
  clause: 'rdma_connect(3), rdma_establish(3)',
  states: {
    connecting: 'the TCP connection is being made',
    requesting: 'the Request is out',
    deciding: 'an accepting Reply is held until the program confirms it',
    confirming: 'the program has confirmed the Reply',
    established: 'the queue pair is connected',
    closing: 'a close or a Terminate has begun, on either side',
    leaving: 'the connection was rejected or has failed, and `disconnected` follows',
    lapsed: 'the connection has failed before the program confirmed it',
    expired: 'the connection has ended before the program confirmed it',
    ended: 'the end',
  },
  inputs: {
    opened: 'TCP is connected',
    response: 'an accepting Reply, with `confirm`',
    confirm: '`establish()`, or a Terminate in its place',
    establish: 'the stream is operational',
    reject: 'a rejecting Reply',
    'startup-failed':
      'TCP could not be connected, or start-up failed; the event goes by the status: `rejected`, ' +
      '`unreachable`, `address-error` or `connect-error`',
    close: 'a close or a Terminate has begun',
    cancel: 'the program gives up before TCP is connected',
    ended: 'the stream has ended',
    heard: 'the program is given the event of the failure or the end',
  },
};

const passiveConnection: Chapter<PassiveState, PassiveInput> = {
  table: PASSIVE_TABLE,
  title: 'Passive connection',
  constant: 'PASSIVE_TABLE',
  file: 'src/cm/states.ts',
  clause: 'rdma_accept(3), rdma_reject(3)',
  states: {
    starting: 'TCP is connected, and the Request has not come whole',
    requested: 'the program has the request and is to answer it',
    accepting: 'the program has accepted',
    established: 'the queue pair is connected',
    closing: 'a close or a Terminate has begun, on either side',
    leaving: 'the connection was rejected, has failed or was given up, and `disconnected` follows',
    lapsed: 'the connection has failed or was given up before the program answered it',
    expired: 'the connection has ended before the program answered it',
    ended: 'the end',
  },
  inputs: {
    request: 'a good Request',
    accept: '`accept()`',
    reject: '`reject()`',
    establish: 'the stream is operational',
    'startup-failed': 'start-up failed, or the connection was displaced; the event is `connect-error`',
    leave: 'the program, or the end of its listener, gives the connection up',
    close: 'a close or a Terminate has begun',
    ended: 'the stream has ended',
  },
};

const cmListener: Chapter<ListenerState, ListenerInput> = {
  table: LISTENER_TABLE,
  title: 'Listener of the connection manager',
  constant: 'LISTENER_TABLE',
  file: 'src/cm/states.ts',
  clause: 'rdma_listen(3)',
  states: {
    binding: 'the address is being bound',
    listening: 'connections are accepted',
    closing: 'nothing is accepted, and the address is not free yet',
    closed: 'the end',
  },
  inputs: {
    bound: 'the address is bound',
    'bind-failed': 'the address cannot be bound',
    close: '`close()`',
    released: 'the address is free',
  },
};

const listenerSlot: Chapter<SlotState, SlotInput> = {
  table: SLOT_TABLE,
  title: 'Slot of a listener',
  constant: 'SLOT_TABLE',
  file: 'src/engine/listener-limits.ts',
  clause: 'RFC 5042 6.4.4 (requirement SEC-033)',
  states: {
    starting: 'counts as pending, and makes room for a newer connection if it is the oldest',
    waiting: 'counts as pending: its Request waits for an answer',
    accepted: 'counts as pending until it is established, as over UDP when its client has been heard',
    answered: 'counts for `maxConnections` only',
    leaving: 'will not be answered, and its peer is waited for',
    free: 'no longer counts',
  },
  inputs: {
    request: 'its whole Request is here',
    accept: 'the program has accepted it',
    answer: 'it is established, or the program has rejected it',
    leave: 'start-up has failed, or the program has given it up',
    gone: 'TCP is gone, or the slot was given to a newer connection',
  },
};

const nbdServer: Chapter<ServerState, ServerInput> = {
  table: SERVER_NEGOTIATION_TABLE,
  title: 'NBD server',
  constant: 'SERVER_NEGOTIATION_TABLE',
  file: 'src/nbd/negotiation.ts',
  clause: 'the NBD document, "Fixed newstyle negotiation" and "Session termination"',
  states: {
    greeting: 'the greeting is out',
    options: 'the client flags are here, and options follow',
    transmission: 'an export is chosen: requests and replies',
    draining: 'no request follows; those under way are answered',
    closed: 'the end',
  },
  inputs: {
    'client-flags': 'good client flags',
    option: 'an option that was answered and ends nothing',
    go: 'GO or EXPORT_NAME of an export that is there',
    abort: 'ABORT',
    'bad-frame': 'wrong magic or flags, a name without an export after EXPORT_NAME, or too many options',
    silence: 'no whole frame in time',
    disconnect: 'DISC',
    end: 'the stream ended',
    drained: 'the last reply is out',
  },
};

const sharedSocket: Chapter<SharedState, SharedInput> = {
  table: SHARED_TABLE,
  title: 'Shared socket',
  constant: 'SHARED_TABLE',
  file: 'src/shared/states.ts',
  clause: 'an end of a shared region, [shared.md](shared.md)',
  states: {
    connecting: 'start-up is going on',
    open: 'both tickets are known; operations are taken',
    closing: 'this side has closed or dropped the connection',
    closed: 'the connection has ended, and every operation has completed or failed',
  },
  inputs: {
    established: 'the connection manager reports the connection',
    close: '`close()` or `destroy()`',
    ended: 'the last event of the connection',
  },
};

const nbdClient: Chapter<ClientState, ClientInput> = {
  table: CLIENT_NEGOTIATION_TABLE,
  title: 'NBD client',
  constant: 'CLIENT_NEGOTIATION_TABLE',
  file: 'src/nbd/negotiation.ts',
  clause: 'the NBD document, "Fixed newstyle negotiation" and "Session termination"',
  states: {
    greeting: 'waits for the greeting',
    'structured-reply': 'STRUCTURED_REPLY is out',
    'meta-context': 'SET_META_CONTEXT for base:allocation is out',
    go: 'GO is out',
    'export-name': 'EXPORT_NAME is out',
    transmission: 'requests and replies',
    draining: 'DISC is out',
    closed: 'the end',
  },
  inputs: {
    'fixed-greeting': 'the greeting of a server that knows options',
    'plain-greeting': 'the greeting of a server that knows EXPORT_NAME only',
    agreed: 'the server has agreed',
    unsupported: 'the server does not know the option, or has no such context',
    refused: 'the server refuses the export',
    'bad-frame': 'bytes that the protocol does not allow',
    silence: 'no whole frame in time',
    close: 'the program closes',
    end: 'the stream ended',
  },
};

const datagramStream: Chapter<TrpState, TrpInput> = {
  table: TRP_TABLE,
  title: 'Connection over UDP',
  constant: 'TRP_TABLE',
  file: 'src/trp/states.ts',
  clause: 'docs/protocol-notes.md 4',
  states: {
    idle: 'before the start',
    waiting: 'server: a datagram has come, which is being looked at',
    'req-sent': 'client: the request is out, and sent again',
    'req-rcvd': 'server: the program has the request',
    accepting: 'server: the accept is out, and sent again until the client is heard at the new port',
    established: 'data both ways',
    closing: 'both directions have ended; late datagrams are answered',
    closed: 'the socket is gone',
  },
  inputs: {
    connect: 'the program connects',
    listen: 'a listener hands a datagram on',
    request: 'it is a request',
    accept: 'the program accepts',
    accepted: "the peer's accept",
    heard: "the client's first datagram at the new port",
    leave: 'rejected, both directions ended, aborted, or out of time',
    gone: 'the socket is closed',
  },
};

const sharedMemory: Chapter<ShmState, ShmInput> = {
  table: SHM_TABLE,
  title: 'Connection between threads',
  constant: 'SHM_TABLE',
  file: 'src/shm/states.ts',
  clause: 'docs/shm.md',
  states: {
    open: 'bytes both ways',
    ended: 'ours have ended',
    'peer-ended': "the peer's have ended",
    'both-ended': 'both have ended',
    closed: 'nothing comes or goes',
  },
  inputs: {
    fin: 'our end is in the ring',
    'peer-fin': "the peer's end has been read",
    over: 'both have ended, or a side has reset the connection, or the other thread is gone',
  },
};

const plainStream: Chapter<QpipState, QpipInput> = {
  table: QPIP_TABLE,
  title: 'Stream over plain TCP',
  constant: 'QPIP_TABLE',
  file: 'src/qpip/states.ts',
  clause: 'docs/qpip.md',
  states: {
    idle: 'before the start',
    deciding: 'a connection has come, and the program has not answered',
    operational: 'both directions are open',
    draining: 'the program has closed, and Sends are left',
    ended: 'our direction has ended; arriving data still fills receives',
    'half-open': "the peer's direction has ended; Sends still go out",
    finishing: "the peer's direction has ended, the program has closed, and Sends are left",
    closing: 'both directions have ended',
    aborting: 'reset',
    closed: 'the port is gone',
  },
  inputs: {
    connected: 'our own connection is established',
    incoming: 'a connection of a peer is there',
    accept: 'the program gives it a queue pair',
    close: 'the program closes, or has left a half-open connection idle for `closeTimeout`',
    drained: 'the last Send has been taken by the system',
    'peer-end': "the peer's FIN, after all that it had sent has found a receive",
    abort: 'a reset by the program, a fault, a time-out, or an end within a message',
    'end-of-port': 'TCP is gone',
  },
};

const datagramQp: Chapter<DatagramQpState, DatagramQpInput> = {
  table: DATAGRAM_QP_TABLE,
  title: 'Datagram queue pair',
  constant: 'DATAGRAM_QP_TABLE',
  file: 'src/verbs/datagram-qp-states.ts',
  clause: 'docs/qpip.md',
  states: {
    unbound: 'receives may be posted',
    binding: 'the network has been asked for a port',
    bound: 'datagrams come and go',
    failed: 'the port has failed, or a completion found no room; all posted requests have been flushed',
    destroyed: 'the end',
  },
  inputs: {
    bind: '`bind()`',
    bound: 'the port is there',
    refused: 'the address cannot be bound',
    fail: 'an error of the port, or a full completion queue',
    destroy: '`destroy()`',
  },
};

const engine: Chapter<EngineThreadState, EngineThreadInput> = {
  table: ENGINE_TABLE,
  title: 'Engine in a worker thread',
  constant: 'ENGINE_TABLE',
  file: 'src/engine/proxy/states.ts',
  clause: 'docs/engines.md',
  states: {
    running: 'the thread takes calls, also while it starts',
    stopped: 'ended by plan: the device was closed, or another engine of it failed',
    failed: 'the thread threw, ended by itself or did not answer in time; the device fails',
  },
  inputs: {
    stop: 'nothing is open any longer, or the device ends',
    fail: 'an error, an exit or no answer',
  },
};

const engineListener: Chapter<EngineListenerState, EngineListenerInput> = {
  table: ENGINE_LISTENER_TABLE,
  title: 'Listener over engines',
  constant: 'ENGINE_LISTENER_TABLE',
  file: 'src/engine/proxy/states.ts',
  clause: 'docs/engines.md',
  states: {
    binding: 'engines bind one after the other; connections are kept back',
    bound: 'all have bound, and the program gets its listener',
    listening: 'connections go to the program',
    failed: 'an engine could not bind',
    lost: 'an engine has failed, and no further connection comes',
  },
  inputs: {
    'all-bound': 'the last engine has bound',
    begin: 'the turn after the listener was handed over',
    error: 'an engine reports an error',
  },
};

const promiseConnection: Chapter<ConnectionState, ConnectionInput> = {
  table: CONNECTION_TABLE,
  title: 'Promise connection',
  constant: 'CONNECTION_TABLE',
  file: 'src/api/connection-states.ts',
  clause: 'src/api/close-handshake.ts',
  states: {
    open: 'established',
    finishing: 'the program has closed; our operations are still under way',
    parting: 'our farewell is out; the peer closes when its work is done',
    following: "the peer's farewell has come; our posted operations are still under way",
    leaving: 'TCP is being closed or reset',
    closed: 'the end',
  },
  inputs: {
    close: 'the program closes',
    farewell: 'our work is done, and the peer knows farewells',
    'peer-farewell': "the peer's farewell has come",
    leave: 'a close of TCP, a reset or a Terminate has begun, on either side',
    ended: 'the connection manager reports the end',
  },
};

const promiseServer: Chapter<PromiseServerState, PromiseServerInput> = {
  table: SERVER_TABLE,
  title: 'Promise server',
  constant: 'SERVER_TABLE',
  file: 'src/api/server-states.ts',
  clause: 'src/api/server.ts',
  states: {
    new: 'not listening yet',
    binding: 'the address is being bound, or an earlier one is not free yet',
    listening: 'connections are accepted',
    closed: 'no more are accepted, and those that are left are closed',
  },
  inputs: {
    listen: 'the program calls `listen`',
    bound: 'the address is bound',
    'bind-failed': 'the address cannot be bound',
    close: 'the program closes the server, or its signal is aborted',
  },
};

const clientConnection: Chapter<MemberState, MemberInput> = {
  table: MEMBER_TABLE,
  title: 'Connection of a client',
  constant: 'MEMBER_TABLE',
  file: 'src/client/states.ts',
  clause: 'src/client/client.ts',
  states: {
    connecting: 'an attempt is under way, up to the end of `onConnect`',
    open: 'calls may use the connection',
    waiting: 'for the next attempt',
    ended: 'the client has been closed or destroyed, or has given up',
  },
  inputs: {
    ready: 'the connection is established, and `onConnect` has been run',
    failed: 'the attempt has failed',
    lost: 'the connection has ended',
    retry: 'the wait is over',
    end: '`close()` or `destroy()`, or one attempt too many has failed',
  },
};

/** Mermaid takes no hyphen in a state's name. */
function stateName(state: string): string {
  return state.replaceAll('-', '_');
}

const channel: Chapter<ChannelState, ChannelInput> = {
  table: CHANNEL_TABLE,
  title: 'rsocket connection',
  constant: 'CHANNEL_TABLE',
  file: 'src/rsocket/states.ts',
  clause: 'librdmacm/docs/rsocket',
  states: {
    opening: 'the connection is being made',
    open: 'bytes flow',
    closing: 'our end of both directions is out, or the TCP connection is being ended',
    closed: 'the connection is gone',
  },
  inputs: {
    established: 'the connection is made and the private data of the peer is good',
    'all-said': 'our DISCONNECT has left: wait for that of the peer, for a minute at most',
    leave: 'both sides have ended, or the wait is over: end the queue pair',
    gone: 'the connection has ended, in order or not',
  },
};

const direction: Chapter<DirectionState, DirectionInput> = {
  table: DIRECTION_TABLE,
  title: 'rsocket direction',
  constant: 'DIRECTION_TABLE',
  file: 'src/rsocket/states.ts',
  clause: 'librdmacm/docs/rsocket',
  states: {
    flowing: 'its sender has not ended it',
    'shut-down': 'its sender has ended it and still receives',
    disconnected: 'its sender has ended both directions',
  },
  inputs: {
    shutdown: 'a SHUTDOWN message',
    disconnect: 'a DISCONNECT message, or the end of the TCP stream',
  },
};

const sdp: Chapter<SdpState, SdpInput> = {
  table: SDP_TABLE,
  title: 'SDP connection',
  constant: 'SDP_TABLE',
  file: 'src/sdp/states.ts',
  clause: 'Sockets Direct Protocol, DisConn and AbortConn',
  states: {
    opening: 'the connection is being made',
    open: 'bytes flow in both directions',
    ending: 'our end is asked for: DisConn follows behind everything that was written',
    'peer-ended': 'the peer has sent DisConn',
    closing: 'both ends are said, or ours is on its way',
    closed: 'the connection is gone',
  },
  inputs: {
    'hello-ack': 'the set-up is complete',
    end: 'the program ends its direction',
    disconn: 'DisConn arrives',
    gone: 'the transport has ended',
  },
};

const sdpMode: Chapter<SdpMode, ModeInput> = {
  table: MODE_TABLE,
  title: 'SDP mode of a half connection',
  constant: 'MODE_TABLE',
  file: 'src/sdp/states.ts',
  clause: 'Sockets Direct Protocol, ModeChange',
  states: {
    buffered: 'Data only',
    combined: 'Data, and one SrcAvail at a time with inline data',
    pipelined: 'Data, and several SrcAvails and SinkAvails without inline data',
  },
  inputs: {
    'to-buffered': 'the source changes to buffered',
    'to-combined': 'the source changes from pipelined, or the sink from buffered',
    'to-pipelined': 'the source changes to pipelined',
  },
};

const extendedSocket: Chapter<ExtendedState, ExtendedInput> = {
  table: EXTENDED_TABLE,
  title: 'Extended socket',
  constant: 'EXTENDED_TABLE',
  file: 'src/sockets/extended/states.ts',
  clause: 'extended sockets, [extended-sockets.md](extended-sockets.md)',
  states: {
    plain: 'a TCP socket as any other',
    switching: 'written bytes leave, and start-up is going on',
    rdma: 'posts are taken',
    closing: 'this side has ended or dropped the connection',
    closed: 'the connection has ended, and every post has completed',
  },
  inputs: {
    switch: "`setOption('DDPMODE', true)`",
    refused: 'nothing has been changed: the socket cannot be switched, or its bytes do not leave',
    established: 'both ends speak RDMA',
    end: '`end()` or `destroy()`',
    gone: 'the connection has ended',
  },
};

const socketServer: Chapter<SocketServerState, SocketServerInput> = {
  table: SOCKET_SERVER_TABLE,
  title: 'Socket server',
  constant: 'SOCKET_SERVER_TABLE',
  file: 'src/sockets/server-states.ts',
  clause: 'net.Server of the Node.js documentation',
  states: {
    idle: 'it has not listened',
    binding: 'the address is being bound',
    listening: 'connections are accepted',
    closing: 'no more are accepted; the address is not free yet',
    draining: 'the address is free; connections are still open',
    reopening: 'closed, and asked to listen again once the address is free',
    closed: 'all have ended',
  },
  inputs: {
    listen: '`listen()`',
    bound: 'the address is bound',
    failed: 'the address cannot be bound',
    close: '`close()`',
    freed: 'nothing is bound any longer',
    ended: 'the last connection has ended',
  },
};

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
  return [
    'stateDiagram-v2',
    `  [*] --> ${stateName(table.initial)}`,
    ...lines,
    ...ends.map((state) => `  ${stateName(state)} --> [*]`),
  ];
}

function matrix<S extends string, I extends string>(
  table: MachineTable<S, I>,
  states: readonly S[],
  inputs: readonly I[],
): string[] {
  const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  const body = states.map((state) =>
    row([`**${state}**`, ...inputs.map((input) => table.transitions[state][input] ?? '·')]),
  );
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
  return [
    INTRODUCTION,
    chapter(initiator),
    chapter(responder),
    chapter(stream),
    chapter(queuePair),
    chapter(activeConnection),
    chapter(passiveConnection),
    chapter(cmListener),
    chapter(listenerSlot),
    chapter(engine),
    chapter(engineListener),
    chapter(channel),
    chapter(direction),
    chapter(sdp),
    chapter(sdpMode),
    chapter(socketServer),
    chapter(extendedSocket),
    chapter(nbdServer),
    chapter(nbdClient),
    chapter(sharedSocket),
    chapter(plainStream),
    chapter(datagramStream),
    chapter(sharedMemory),
    chapter(datagramQp),
    chapter(promiseConnection),
    chapter(promiseServer),
    chapter(clientConnection),
  ].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(STATES_PAGE, renderStatesPage());
