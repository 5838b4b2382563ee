import type { ServerUnaryCall, ServerWritableStream, sendUnaryData, status } from '@grpc/grpc-js';

interface HealthRequest {
  readonly service?: string;
}
interface HealthResponse {
  readonly status: number;
}

const [SERVING, NOT_SERVING, SERVICE_UNKNOWN] = [1, 2, 3];
const NOT_FOUND: status.NOT_FOUND = 5;

/** The service grpc.health.v1 of a process that is ready or not as a whole. */
export class GrpcHealth {
  readonly #services: ReadonlySet<string>;
  readonly #watchers = new Set<ServerWritableStream<HealthRequest, HealthResponse>>();
  #serving = false;

  /** @param services names that clients may ask for, besides '' for the whole process */
  constructor(services: readonly string[]) {
    this.#services = new Set(['', ...services]);
  }

  /** Notifies all watchers of a change. */
  set serving(serving: boolean) {
    if (serving === this.#serving) return;
    this.#serving = serving;
    for (const call of this.#watchers) this.#tell(call);
  }

  /** The methods of the service. */
  readonly methods = {
    Check: (call: ServerUnaryCall<HealthRequest, HealthResponse>, reply: sendUnaryData<HealthResponse>) => {
      if (this.#services.has(call.request.service ?? '')) reply(null, { status: this.#status });
      else reply({ code: NOT_FOUND, details: 'no such service' });
    },
    Watch: (call: ServerWritableStream<HealthRequest, HealthResponse>) => {
      if (!this.#services.has(call.request.service ?? ''))
        return void call.write({ status: SERVICE_UNKNOWN });
      this.#watchers.add(call);
      call.once('cancelled', () => this.#watchers.delete(call));
      this.#tell(call);
    },
  };

  /** Ends the streams of all watchers. */
  close(): void {
    this.serving = false;
    for (const call of this.#watchers) call.end();
  }

  get #status(): number {
    return this.#serving ? SERVING : NOT_SERVING;
  }

  #tell(call: ServerWritableStream<HealthRequest, HealthResponse>): void {
    call.write({ status: this.#status });
  }
}
