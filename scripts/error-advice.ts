/** The advice in docs/errors.md for each code beside its meaning: the cause, and the remedy for a program. */
import type { IwarpErrorCode } from '../src/base/errors.ts';

/** Of one code. */
interface ErrorAdvice {
  /** The calls and the events of the network that end in this code. */
  readonly raisedBy: string;
  /** The remedy. */
  readonly whatToDo: string;
}

/** For every code: the type asks for all of them. */
export const ERROR_ADVICE: Readonly<Record<IwarpErrorCode, ErrorAdvice>> = {
  ERR_INVALID_ARGUMENT: {
    raisedBy: 'every call, at once and before anything happens',
    whatToDo: 'Correct the argument that the message names; unknown options are refused too.',
  },
  ERR_OUT_OF_RANGE: {
    raisedBy: '`slice` of a ticket, scatter/gather elements, atomics on less than 8 bytes',
    whatToDo: 'Check the offset and the length against `length` of the ticket or region.',
  },
  ERR_INVALID_STATE: {
    raisedBy: 'calls in the wrong order, such as `listen` twice, or posting before a connection',
    whatToDo: 'Look at `state` of the object, or wait for the event that the message names.',
  },
  ERR_QUEUE_FULL: {
    raisedBy: '`postSend` and `postRecv` of verbs; connections queue operations themselves',
    whatToDo: 'Poll completions and post again, or make the queue deeper (`maxSendWr`, `maxRecvWr`).',
  },
  ERR_TOO_LARGE: {
    raisedBy: '`send`, `connect` and `accept` with private data, inline data, long lists',
    whatToDo: 'Use the option or call that the message names: `maxMessageSize`, or `write` and `read`.',
  },
  ERR_ACCESS: {
    raisedBy: 'posting with a region that lacks a right; binding windows; the control socket, capture files',
    whatToDo: 'Register the memory with the right that the message names, or make the folder usable.',
  },
  ERR_WRONG_PD: {
    raisedBy: 'calls that bring together objects of two domains or devices',
    whatToDo: 'Make them from one `ProtectionDomain`; give connections that share memory one `pd`.',
  },
  ERR_INVALID_REGION: {
    raisedBy: 'posting, sharing or registering again with a region or window that has gone',
    whatToDo: 'Register the memory again. For longer than a connection use `pd.registerMemory`.',
  },
  ERR_IN_USE: {
    raisedBy: '`destroy`, `deallocate`, `deregister`, `resize`, `close` of a device',
    whatToDo: 'Destroy first what uses the object; `query()` counts its users.',
  },
  ERR_LIMIT: {
    raisedBy: 'making an object when the device has its limit; memory that the host refuses; `onFailure`',
    whatToDo: 'Look for a leak in `device.query().inUse`, or raise `limits` of `openRnic`.',
  },
  ERR_NOT_SUPPORTED: {
    raisedBy: 'atomics and Immediate Data to a peer without them; `reusePort` before Node 22.12; `wait`',
    whatToDo: 'Use what both sides have, or the engine or wire that the message names.',
  },
  ERR_DESTROYED: {
    raisedBy: 'every call on an object that has been destroyed, and what waited for it',
    whatToDo: 'Nothing, while shutting down; else keep the object longer.',
  },
  ERR_REJECTED: {
    raisedBy: '`connect`, when the peer said no, or could not take one more connection',
    whatToDo: 'Read `privateData` for the reason, and try again later, with a growing pause.',
  },
  ERR_STARTUP: {
    raisedBy: '`connect`, and `onFailure` of a server',
    whatToDo:
      'Check that the peer speaks iWARP on this port; try a `preset` for its kind. `systemCode` is ' +
      'ECONNRESET if the peer left.',
  },
  ERR_TIMEOUT: {
    raisedBy: '`connect`, a close that the peer does not answer, NBD requests',
    whatToDo: 'Try again. For slow peers raise `replyTimeout`, `closeTimeout` or `closeLimit`.',
  },
  ERR_CONNECT: {
    raisedBy: '`connect` and `listen`; `cause` has the code of the system',
    whatToDo: 'ECONNREFUSED: is the server up? EADDRINUSE: does another process have the port?',
  },
  ERR_TERMINATED: {
    raisedBy: 'pending operations and `closed`, when a side found an error of the other',
    whatToDo: 'Read `terminate.description`: it names the layer and the rule. Connect again.',
  },
  ERR_CONNECTION_CLOSED: {
    raisedBy: 'operations after or during an orderly close of either side',
    whatToDo: 'Nothing, if the end was expected; else connect again.',
  },
  ERR_CONNECTION_RESET: {
    raisedBy: 'pending operations and `closed`, when the TCP connection broke',
    whatToDo: 'Connect again; pending operations may or may not have reached the peer.',
  },
  ERR_WORK_COMPLETION: {
    raisedBy: 'a Read, Write, Send or atomic that the peer or this side refused: `OperationError`',
    whatToDo: 'Read `status` and `terminate`. Mostly the ticket is too old, too long or lacks a right.',
  },
  ERR_NOT_SHARED: {
    raisedBy: '`register` and Reads into ordinary memory, with the engine in a worker',
    whatToDo: 'Allocate with `connection.allocate` or `device.allocateMemory`: they suit both engines.',
  },
  ERR_ENGINE_FAILED: {
    raisedBy: 'everything on a device whose worker thread has ended',
    whatToDo: 'See `cause`. In a bundle add the entry `iwarp/engine`; the default device is replaced.',
  },
  ERR_ABORTED: {
    raisedBy: 'calls with a `signal`',
    whatToDo: 'Nothing: the program asked for it. A posted operation stays posted until the connection ends.',
  },
  ERR_LENT_CHANGED: {
    raisedBy: 'a lease of `RdmaSocket.lend` with `guard`',
    whatToDo:
      'Await `touch()` of the lease before you change the memory; the peer may have got either content.',
  },
  ERR_NBD: {
    raisedBy: 'requests to a block device: `read`, `write`, `flush`, `trim`, `zero`',
    whatToDo: 'Look at `errno`: ENOSPC, EPERM and EINVAL are final, EIO is worth another try.',
  },
  ERR_REMOTE: {
    raisedBy: '`request` and `lookup` of a connection or client',
    whatToDo: "The peer's program decides; its text is the message. The connection goes on.",
  },
  ERR_PROTOCOL: {
    raisedBy: 'NBD and other protocols above a connection',
    whatToDo: 'Check that the peer serves this protocol; report it with a capture if it should.',
  },
  ERR_INTERNAL: {
    raisedBy: 'nothing that should happen',
    whatToDo: 'Report it with its stack and, if possible, a capture (`captureTo`).',
  },
};
