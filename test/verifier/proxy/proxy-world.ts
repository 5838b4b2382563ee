import { afterEach, beforeEach, expect } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { loadConfig } from '#shared/process/load-config.ts';
import type { AuthzSettings } from '../../../verifier/doors/http/authz.ts';
import type { HttpLimits } from '../../../verifier/doors/http/server.ts';
import { Metrics } from '../../../verifier/metrics/metrics.ts';
import { createProxy, type ProxyListener, proxySettings } from '../../../verifier/proxy/proxy.ts';
import { limits, ScriptedAnswers } from '../../harness/scripted-answers.ts';
import { Upstream } from '../../harness/upstream.ts';
import { Wire } from '../../harness/wire.ts';

/** `proxy-without-lane.test.ts` tests the same without it. */
export const FAST_LANE = process.env['PROXY_FAST_LANE'] !== 'false';

/** Of the test that runs: a proxy with scripted answers, and the API behind it. */
export let answers: ScriptedAnswers;
export let upstream: Upstream;
export let proxy: ProxyListener;
export let address: string;
let wires: Wire[];
let isRunning = false;

interface Changed {
  readonly env?: Record<string, string>;
  readonly authz?: Partial<AuthzSettings>;
  readonly limits?: Partial<HttpLimits>;
  readonly url?: string;
}

/** Starts the proxy. */
export async function start(changed: Changed = {}): Promise<void> {
  answers = new ScriptedAnswers();
  proxy = await createProxy(new URL(changed.url ?? `${upstream.address}/behind/`), {
    // Counted, as in the process.
    verifier: new Metrics().count(answers, systemClock),
    authz: {
      sources: ['bearer', 'x-api-key'],
      withMeta: false,
      allowPreflight: false,
      needsApi: false,
      ...changed.authz,
    },
    config: loadConfig(proxySettings, changed.env ?? {}),
    limits: { ...limits, FAST_LANE, ...changed.limits },
    clock: systemClock,
    log: { error: (fields: unknown) => expect.fail(JSON.stringify(fields)), warn: () => undefined },
  });
  address = await proxy.listen('127.0.0.1', 0);
}

/** Starts the proxy again, otherwise. */
export async function restart(changed: Changed): Promise<void> {
  await proxy.close(0);
  await start(changed);
}

/** A connection to the proxy. */
export function wire(to = address): Wire {
  const made = new Wire(to);
  wires.push(made);
  return made;
}

export const BEARER = 'Authorization: Bearer good';
export const call = (lines: readonly string[], body = '', first = 'GET /orders/1?a=%20b HTTP/1.1') =>
  [first, 'Host: shop.example', ...lines, '', body].join('\r\n');
export const post = (lines: readonly string[], body = '') => call(lines, body, 'POST /orders HTTP/1.1');
export const ask = (lines: readonly string[], body?: string, first?: string) =>
  wire()
    .send(call(lines, body, first))
    .response();

/** Gives each test of a file its own. To be called once at least: `proxy-without-lane.test.ts` has several files in one. */
export function useProxy(): void {
  beforeEach(async () => {
    if (isRunning) return;
    isRunning = true;
    wires = [];
    upstream = await Upstream.start();
    await start();
  });
  afterEach(async () => {
    if (!isRunning) return;
    isRunning = false;
    for (const made of wires) made.close();
    answers.release();
    await proxy.close(0);
    await upstream.close();
  });
}
