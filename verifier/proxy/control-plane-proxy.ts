import type { Clock } from '#shared/process/clock.ts';
import { type ConfigOf, httpUrl } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { asReadByServers } from '../doors/http/credentials.ts';
import type { Handler, Routes } from '../doors/http/server.ts';
import { endToEndHeaders, forwardedFor, writtenByTracer } from './headers.ts';
import {
  bodyOf,
  FaultLog,
  leadsTo,
  UpstreamError,
  type UpstreamFault,
  UpstreamPool,
  type UpstreamStats,
} from './upstream.ts';

/** The operations that a verifier answers itself. */
export const ANSWERED_HERE = [
  'keys.verifyKey',
  'keys.release',
  'keys.getSelf',
  'keys.issueToken',
  'ratelimit.limit',
  'ratelimit.multiLimit',
] as const;

export const forwardSettings = {
  CONTROL_PLANE_URL: httpUrl().help(
    `Address of the control plane. If it is set, the verifier forwards every \`/v1/\` and \`/v2/\` call to it, except ${ANSWERED_HERE.map((name) => `\`${name}\``).join(', ')}`,
  ),
};

/** Limits that suit everybody. Only tests replace them. */
export const forwardLimits = {
  /** Longest wait of such a call for an answer: above the 60 s that an update may wait, below STALL_TIMEOUT_MS. */
  CONTROL_PLANE_TIMEOUT_MS: 75_000,
  /** Most such calls at once, each on a connection of its own; more are answered 503. */
  CONTROL_PLANE_CONNECTIONS_MAX: 100,
};

/** Returns the faults of `forwardSettings` in combination with the listener's settings. */
export function forwardFaults(
  config: ConfigOf<typeof forwardSettings> & { HOST: string; PORT: number },
): string[] {
  const { CONTROL_PLANE_URL: url, HOST, PORT } = config;
  if (url === undefined) return [];
  return [
    ...(leadsTo(url, HOST, PORT)
      ? ['CONTROL_PLANE_URL: leads to this verifier itself (HOST and PORT), not to the control plane']
      : []),
  ];
}

/** The part of the interface that the control plane answers. */
export interface ControlPlaneProxy {
  readonly below: Routes['below'];
  readonly stats: UpstreamStats;
  close(): Promise<void>;
}

/**
 * Creates routes that pass calls on to `url`. A call without an answer gets 503 in the contract's form. So
 * does a call that this verifier has already passed on.
 * @param options.id id of this process in the fleet's list
 */
export async function createControlPlaneProxy(
  url: URL,
  options: {
    id: string;
    config: typeof forwardLimits & { HEADER_BYTES_MAX: number };
    clock: Clock;
    log: Pick<Logger, 'warn'>;
  },
): Promise<ControlPlaneProxy> {
  const { id, config, clock, log } = options;
  const ownHeaders: ReadonlySet<string> = new Set([...OWN_HEADERS, ...writtenByTracer()]);
  const isOurs = (name: string) => ownHeaders.has(asReadByServers(name));
  let isLoopLogged = false;
  const limits = {
    connectionsMax: config.CONTROL_PLANE_CONNECTIONS_MAX,
    timeoutMs: config.CONTROL_PLANE_TIMEOUT_MS,
    headerBytesMax: config.HEADER_BYTES_MAX,
  };
  const controlPlane = await UpstreamPool.to(
    url,
    limits,
    new FaultLog('the control plane', clock, log),
    clock,
  );
  const handler: Handler = async (request, response, requestId, events) => {
    const { method = '', url: target = '', rawHeaders, headers } = request;
    if (!OPERATION.test(target)) throw new ApiError('NOT_FOUND', 'no such path');
    const hops = headers.via ?? '';
    if (hops.split(/[\s,]+/).includes(id)) {
      if (!isLoopLogged) log.warn({ requestId }, LOOP);
      isLoopLogged = true;
      throw unavailable(LOOP);
    }
    const passedHeaders = endToEndHeaders(rawHeaders, headers.connection, isOurs);
    const client = forwardedFor(headers['x-forwarded-for']?.toString(), request.socket.remoteAddress);
    try {
      const body = bodyOf(request, response);
      await controlPlane.send(response, {
        method,
        body,
        target,
        events,
        requestId,
        rawHeaders,
        headers: [...passedHeaders, 'X-Forwarded-For', client, 'X-Request-Id', requestId, 'Via', `1.1 ${id}`],
      });
    } catch (error) {
      throw error instanceof UpstreamError ? unavailable(MESSAGES[error.fault], error) : error;
    }
  };
  return {
    below: ['/v1/', '/v2/'].map((prefix) => [prefix, handler] as const),
    stats: controlPlane,
    close: () => controlPlane.close(),
  };
}

const LOOP =
  'CONTROL_PLANE_URL of the verifier leads back to the verifier itself; set it to the address of the control plane';

/**
 * Routes of a verifier without CONTROL_PLANE_URL: the refusal of an operation says that the control plane
 * answers it.
 */
export const notForwarded: Routes['below'] = ['/v1/', '/v2/'].map((prefix) => [
  prefix,
  ({ url: target = '' }) => {
    const isOperation = OPERATION.test(target);
    throw new ApiError('NOT_FOUND', isOperation ? WRONG_SERVER : 'no such path');
  },
]);

const WRONG_SERVER = `no such path: this is a verifier, which answers ${ANSWERED_HERE.join(', ')}; ask the control plane, or set CONTROL_PLANE_URL here`;

/**
 * Operations of the interface. It excludes verifyKey in every spelling, so that no key leaves this process.
 */
const OPERATION = /^\/v[12]\/(?!keys\.verifykey)[a-z]+\.[a-z]+(?:\?|$)/i;

const OWN_HEADERS: ReadonlySet<string> = new Set(['host', 'x-forwarded-for', 'x-request-id']);

const MESSAGES: Readonly<Record<UpstreamFault, string>> = {
  busy: 'too many calls to the control plane at once; nothing was done',
  unreachable: 'the control plane is out of reach; nothing was done',
  late: 'no answer from the control plane in time; it may or may not have executed the call',
  cut: 'the connection to the control plane ended early; it may or may not have executed the call',
  invalid: 'no valid answer from the control plane; it may or may not have executed the call',
};
