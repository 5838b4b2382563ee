import { Fleet } from '../harness/fleet.ts';
import { freePort } from '../harness/ports.ts';
import { Process } from '../harness/processes.ts';
import { Upstream } from '../harness/upstream.ts';
import type { Wire } from '../harness/wire.ts';
import { type Around, type Ask, Gateway, type GatewayName, type Got, gatewayNames } from './gateways.ts';

/** The API that the gateways front, and another of the same verifier. */
export const API_ID = 'shop';
export const OTHER_API_ID = 'other';

/** Redis, a control plane, a verifier, and an API behind every gateway. */
export class World {
  readonly fleet: Fleet;
  readonly verifier: Process;
  readonly upstream: Upstream;
  around: Around = {
    VERIFIER: '',
    VERIFIER_GRPC: '',
    UPSTREAM: '',
    API_ID,
    CREDENTIAL_SOURCES: '',
    OPTIONAL: '',
  };
  readonly #gateways = new Map<GatewayName, Gateway>();

  private constructor(
    fleet: Fleet,
    upstream: Upstream,
    grpcPort: number,
    env: Readonly<Record<string, string>>,
  ) {
    this.fleet = fleet;
    this.upstream = upstream;
    upstream.handle = (request, response) => {
      request.on('end', () => response.end('from the API'));
    };
    this.verifier = new Process('verifier/main.ts', {
      REDIS_URL: fleet.redisUrl,
      API_IDS: `${API_ID},${OTHER_API_ID}`,
      EXT_AUTHZ_GRPC_PORT: String(grpcPort),
      ...env,
    });
  }

  /**
   * @param env the verifier's settings
   * @param hasPorts true = gateways listen at ports, so that their clients have addresses
   * @param isOptional true = requests without a key may pass, but on the route that needs a permission
   * @param names the gateways, of those that are there
   */
  static async start(
    env: Readonly<Record<string, string>> = {},
    hasPorts = false,
    isOptional = false,
    names: readonly GatewayName[] = gatewayNames,
  ): Promise<World> {
    const grpcPort = await freePort();
    const { TOKEN_KEY = '' } = env;
    const fleet = await Fleet.start({ verifiers: 0, env: { LEASE_MS: '20000', TOKEN_KEY } });
    const world = new World(fleet, await Upstream.start(), grpcPort, env);
    await world.verifier.start();
    world.around = {
      VERIFIER: new URL(world.verifier.address).host,
      VERIFIER_GRPC: `127.0.0.1:${grpcPort}`,
      UPSTREAM: `127.0.0.1:${world.upstream.port}`,
      API_ID,
      CREDENTIAL_SOURCES: env['CREDENTIAL_SOURCES'] ?? 'bearer,x-api-key',
      OPTIONAL: isOptional ? 'true' : '',
    };
    await Promise.all(
      names.map(async (name) => {
        const port = hasPorts ? await freePort() : undefined;
        world.#gateways.set(name, await Gateway.start(name, world.fleet.directory, world.around, port));
      }),
    );
    // Where keys are optional, the gateways' first requests reached it.
    world.upstream.take();
    return world;
  }

  /**
   * Starts two of them, whose gateways tell the client's address in the header that Traefik sets, and in the one that all others
   * set. Returns the one of a gateway.
   */
  static async withAddresses(
    env: Readonly<Record<string, string>>,
    isOptional = false,
  ): Promise<{ of: (name: GatewayName) => World; stop: () => Promise<unknown> }> {
    const start = (header: string, isTraefik: boolean) => {
      const names = gatewayNames.filter((name) => (name === 'traefik') === isTraefik);
      return World.start({ CLIENT_IP_HEADER: header, ...env }, true, isOptional, names);
    };
    const [others, traefik] = await Promise.all([
      start('x-client-ip', false),
      start('x-forwarded-for', true),
    ]);
    return {
      of: (name) => (name === 'traefik' ? traefik : others),
      stop: () => Promise.all([others.stop(), traefik.stop()]),
    };
  }

  /** What a gateway wrote so far, such as its access log. */
  outputOf(name: GatewayName): string {
    return this.#gateways.get(name)?.output ?? '';
  }

  /** Where a gateway listens, if gateways have ports. */
  addressOf(name: GatewayName): string {
    return this.#gateway(name).address;
  }

  /** One request through a gateway. */
  ask(name: GatewayName, asked: Ask): Promise<Got> {
    return this.#gateway(name).ask(asked);
  }

  /** A bare connection to a gateway. */
  connect(name: GatewayName): Wire {
    return this.#gateway(name).connect();
  }

  #gateway(name: GatewayName): Gateway {
    const gateway = this.#gateways.get(name);
    if (!gateway) throw new Error(`${name} is not there`);
    return gateway;
  }

  /** As `ask`, again while there is no verdict: a busy machine may take longer than gateways wait. */
  async decided(name: GatewayName, asked: Ask): Promise<Got> {
    let got = await this.ask(name, asked);
    await this.fleet.until(async () => {
      if (got.status !== 503) return true;
      got = await this.ask(name, asked);
      return false;
    }, `${name} has no verdict`);
    return got;
  }

  /** A new key, once every gateway lets it through. */
  async validKey(more: object = {}): Promise<{ key: string; keyId: string }> {
    const created = await this.fleet.ok('keys.createKey', { apiId: API_ID, ...more });
    for (const name of this.#gateways.keys()) {
      const { status } = await this.decided(name, showing(created.key));
      if (status !== 200) throw new Error(`${name}: ${status} for a new key`);
    }
    this.upstream.take();
    return created;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#gateways.values()].map((gateway) => gateway.stop()));
    await this.upstream.close();
    this.verifier.signal('SIGCONT');
    await this.verifier.stop('SIGTERM');
    await this.fleet.stop();
  }
}

/** A request with its key where most clients put it. */
export function showing(key: string) {
  return { headers: ['Authorization', `Bearer ${key}`] };
}
