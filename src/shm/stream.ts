/** A stream between two threads, whose Writes go straight to the other thread's memory where they can. */
import type { DepthRequest } from '../llp/startup.ts';
import type { Transmission } from '../llp/lower-layer.ts';
import { MpaLowerLayer, type MpaConfig } from '../mpa/lower-layer.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import { RdmaStream } from '../stream/stream.ts';
import type { StreamConfig } from '../stream/types.ts';
import type { SharedPlacement } from './placement.ts';

/** The lower layer that offers direct placement. */
class ShmLowerLayer extends MpaLowerLayer {
  readonly direct: SharedPlacement;

  constructor(config: MpaConfig, direct: SharedPlacement) {
    super(config);
    this.direct = direct;
  }
}

export class ShmStream extends RdmaStream {
  readonly #placement: SharedPlacement;

  constructor(config: StreamConfig & MpaConfig, placement: SharedPlacement) {
    super(config, new ShmLowerLayer(config, placement));
    this.#placement = placement;
  }

  override start(
    now: number,
    endpoint: StreamEndpoint | null,
    privateData: Uint8Array,
    wishes: DepthRequest,
  ): void {
    super.start(now, endpoint, privateData, wishes);
    if (endpoint !== null) this.#placement.endpoint = endpoint;
  }

  override accept(
    now: number,
    endpoint: StreamEndpoint,
    privateData: Uint8Array,
    wishes: DepthRequest,
  ): void {
    super.accept(now, endpoint, privateData, wishes);
    this.#placement.endpoint = endpoint;
  }

  /** Asked after every input: the state that it has led to is seen here first. */
  override pollTransmit(): Transmission | null {
    const transmission = super.pollTransmit();
    switch (this.state) {
      case 'operational':
      case 'draining':
        this.#placement.allowed = true;
        break;
      case 'closing':
      case 'terminating':
        this.#placement.end();
        break;
      default: // no request of the other thread is answered yet, or no longer
    }
    return transmission;
  }

  override handleClose(error: Error | undefined, now: number): void {
    this.#placement.end();
    super.handleClose(error, now);
  }
}
