/** The side that connects: rdma_connect and rdma_establish. */
import { checkBoolean, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import { Interned } from '../base/interned.ts';
import type { Engine } from '../engine/engine.ts';
import type { DepthRequest } from '../mpa/negotiate.ts';
import { privateDataRoom, requestRevision, type ConnectionPolicy } from '../mpa/policy.ts';
import type { ConnectTarget } from '../transport/port.ts';
import type { QueuePair } from '../verbs/qp.ts';
import {
  checkDepth,
  checkPrivateData,
  checkTerminateCode,
  CmConnection,
  KEEP_ALIVE_NAMES,
  PARAM_NAMES,
  type ConnectionContext,
  type ConnParam,
  type KeepAliveOptions,
} from './connection.ts';
import type { CmEvent } from './events.ts';
import { ACTIVE_TABLE, type ActiveInput, type ActiveState } from './states.ts';
import { TARGET_NAMES, type TargetOptions } from './target.ts';

/** Where and how to connect. */
export interface ConnectOptions extends ConnParam, TargetOptions, KeepAliveOptions {
  /** Host name or address of the peer. Needed unless there is a path. */
  readonly host?: string | undefined;
  /** Differences from {@link DEFAULT_POLICY}. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** With the wire `qpip`: how messages lie in the byte stream, in place of the policy's `framing`. */
  readonly framing?: ConnectionPolicy['framing'] | undefined;
  /**
   * Hold an accepting Reply, with a `connect-response` event, until `establish()` (MPA-035). A Reply that
   * calls for a Terminate (ENH-022, ENH-040) is not held: the connection is established and ends with that
   * Terminate.
   */
  readonly confirm?: boolean | undefined;
}

const CONNECT: Names<ConnectOptions> = {
  ...PARAM_NAMES,
  ...TARGET_NAMES,
  ...KEEP_ALIVE_NAMES,
  policy: true,
  framing: true,
  confirm: true,
};

/** @internal */
export function checkConnectOptions(options: ConnectOptions): void {
  checkOptions('options', options, CONNECT);
}

/** The side that connects. */
export class ActiveConnection extends CmConnection {
  readonly #qp: QueuePair;
  readonly #privateData: Uint8Array;
  readonly #wishes: DepthRequest;
  readonly #confirm: boolean;
  /** The first bytes of a new TCP connection are those of MPA. */
  #isPlain = false;
  #state: ActiveState = ACTIVE_TABLE.initial;

  /** @internal Use {@link ConnectionManager.connect}. */
  constructor(context: ConnectionContext, qp: QueuePair, options: ConnectOptions) {
    super(context);
    const { policy } = context;
    this.#qp = qp;
    this.#privateData = checkPrivateData(
      'options.privateData',
      options.privateData,
      privateDataRoom(policy, requestRevision(policy)),
      context.device,
    );
    this.#wishes = depthRequest(qp, options);
    this.#confirm = checkBoolean('options.confirm', options.confirm === undefined ? false : options.confirm);
    this.qpInUse = qp;
  }

  /** This side has connected. */
  override get role(): 'active' {
    return 'active';
  }

  /** @internal */
  override get state(): ActiveState {
    return this.#state;
  }

  /** @internal */
  protected override step(input: ActiveInput): void {
    const before = this.#state;
    this.#state = nextState(ACTIVE_TABLE, before, input, this);
    this.ledFrom(before);
  }

  /** @internal */
  open(engine: Engine, target: ConnectTarget): void {
    const { device, policy } = this.shared;
    const { tls, over, path } = target;
    this.#isPlain = device.wire === 'iwarp' && tls === undefined && over === undefined && path === undefined;
    this.link = engine.connect(
      {
        target,
        policy,
        confirm: this.#confirm,
        endpoint: this.#qp,
        privateData: this.#privateData,
        wishes: this.#wishes,
      },
      this,
    );
  }

  /**
   * After a `connect-response` event: start full operation (rdma_establish). If the connection has ended
   * meanwhile, nothing is thrown: the event that is on its way says so.
   *
   * @throws ERR_INVALID_STATE
   */
  establish(): void {
    if (ACTIVE_TABLE.transitions[this.#state].confirm === undefined) {
      throw new IwarpError(
        'ERR_INVALID_STATE',
        'establish is for a connection made with confirm, after its connect-response event',
      );
    }
    this.step('confirm');
    if (this.link!.deciding) this.link!.confirm();
  }

  /** @internal */
  protected override heard(event: CmEvent): void {
    const late = this.#state === 'lapsed' || this.#state === 'expired';
    if (late && event.type !== 'connect-response') this.step('heard');
  }

  /** @internal */
  override opened(): void {
    this.step('opened');
    super.opened();
  }

  /** @internal */
  override get mayWantTls(): boolean {
    return this.#isPlain && this.counters().octetsIn === 0;
  }

  /** @internal */
  protected override responseArrived(): void {
    this.step('response');
  }

  /** @internal */
  protected override requestRejected(): void {
    this.step('reject');
  }

  /**
   * Between `connect-response` and `establish()` the Terminate is sent as the first FPDU (ENH-046).
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  override terminate(code: number): void {
    if (this.link?.deciding !== true) {
      super.terminate(code);
      return;
    }
    checkTerminateCode(code);
    this.step('confirm');
    this.link.confirm(code);
  }

  /** @internal */
  protected override cancel(): void {
    if (this.link?.cancel() !== true) return;
    this.#qp.detach();
    this.step('cancel');
    this.raise({ type: 'disconnected', cause: 'reset', error: undefined, terminate: undefined });
  }
}

/** Connections in a row mostly ask for the same. */
const lastDepths = new Interned<DepthRequest>();

/** @internal The depths that the program gives, here or when it made the queue pair (VERBS-018). */
export function depthRequest(qp: QueuePair, { responderResources, initiatorDepth }: ConnParam): DepthRequest {
  const { limits } = qp.pd.device;
  const ird = checkDepth('options.responderResources', responderResources, limits.maxQpRdAtom);
  const ord = checkDepth('options.initiatorDepth', initiatorDepth, limits.maxQpInitRdAtom);
  const { maxIrd, maxOrd } = qp;
  return lastDepths.of({
    ird: ird ?? (maxIrd < limits.maxQpRdAtom ? maxIrd : undefined),
    ord: ord ?? (maxOrd < limits.maxQpInitRdAtom ? maxOrd : undefined),
    maxIrd,
    maxOrd,
  });
}
