import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../harness/built.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { freePort } from '../harness/ports.ts';
import { Process } from '../harness/processes.ts';
import { lacking } from '../harness/programs.ts';
import { Upstream } from '../harness/upstream.ts';
import { eventually } from '../harness/waiting.ts';

const INSTALLED = join(ROOT, 'node_modules/.opentelemetry');
const isThere = existsSync(INSTALLED);
/** As verifier/metrics/usage-and-traces.md tells, but for where it is installed. */
const [, NODE_OPTIONS = 'not told'] =
  /^export NODE_OPTIONS="(.*)"$/m.exec(
    readFileSync(join(ROOT, 'verifier/metrics/usage-and-traces.md'), 'utf8'),
  ) ?? [];

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const CLIENT = '00f067aa0ba902b7';
const TRACED = { traceparent: `00-${TRACE}-${CLIENT}-01`, tracestate: 'vendor=1' };

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly kind: number;
  readonly of: string;
}
const SERVER = 2;
const CLIENT_KIND = 3;

/** A collector of OpenTelemetry that keeps every span. */
class Collector {
  readonly spans: Span[] = [];
  readonly #server: Server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    request.on('end', () => {
      for (const { resource, scopeSpans } of JSON.parse(body).resourceSpans ?? []) {
        const name = resource.attributes.find(({ key }: { key: string }) => key === 'service.name');
        for (const { spans } of scopeSpans)
          for (const span of spans) this.spans.push({ ...span, of: name?.value.stringValue });
      }
      response.setHeader('content-type', 'application/json').end('{}');
    });
  });

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The spans of our trace that a process has sent, of one kind. */
  of(name: string, kind: number): Span[] {
    return this.spans.filter((span) => span.of === name && span.kind === kind && span.traceId === TRACE);
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

describe.skipIf(!isThere)(`under OpenTelemetry${lacking(isThere ? [] : ['OpenTelemetry'])}`, () => {
  let fleet: Fleet;
  let api: Upstream;
  let collector: Collector;
  let controlPlane: Process;
  let verifier: Process;
  let proxy: string;
  let key: string;
  let env: Record<string, string>;

  beforeAll(async () => {
    [fleet, api, collector] = [await Fleet.start({ verifiers: 0 }), await Upstream.start(), new Collector()];
    env = {
      NODE_OPTIONS: NODE_OPTIONS.replace('$NODE_OPTIONS ', '').replace('$PWD/otel', INSTALLED),
      OTEL_EXPORTER_OTLP_ENDPOINT: await collector.listen(),
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_BSP_SCHEDULE_DELAY: '100',
      OTEL_METRICS_EXPORTER: 'none',
      OTEL_LOGS_EXPORTER: 'none',
      OTEL_NODE_RESOURCE_DETECTORS: 'env',
      REDIS_URL: fleet.redisUrl,
    };
    controlPlane = new Process('control-plane/main.ts', { ...env, ROOT_KEY, OTEL_SERVICE_NAME: 'control' });
    await controlPlane.start();
    const port = String(await freePort());
    proxy = `http://127.0.0.1:${port}`;
    verifier = new Process('verifier/main.ts', {
      ...env,
      LOOKUP_WAIT_MS: '5000',
      CONTROL_PLANE_URL: controlPlane.address,
      UPSTREAM_URL: api.address,
      PROXY_API_ID: 'shop',
      PROXY_PORT: port,
      OTEL_SERVICE_NAME: 'verifier',
    });
    await verifier.start();
    ({ key } = await fleet.ok('keys.createKey', { apiId: 'shop' }));
  });
  afterAll(async () => {
    await verifier?.stop('SIGKILL');
    await controlPlane?.stop('SIGKILL');
    collector?.close();
    await api?.close();
    await fleet?.stop();
  });

  /** The path of our trace: each server's span below that of whoever asked it. */
  async function pathTo(parent: () => string | undefined): Promise<void> {
    await eventually(() => collector.of('verifier', SERVER).length > 0);
    await eventually(() => collector.of('verifier', CLIENT_KIND).some(({ spanId }) => spanId === parent()));
    const sent = collector.of('verifier', CLIENT_KIND).find(({ spanId }) => spanId === parent());
    await eventually(() =>
      collector.of('verifier', SERVER).some((span) => span.spanId === sent?.parentSpanId),
    );
    const served = collector.of('verifier', SERVER).find(({ spanId }) => spanId === sent?.parentSpanId);
    expect(served?.parentSpanId).toBe(CLIENT);
  }

  test('calls stay in the trace of their caller', async () => {
    const { status } = await fleet.send(`${proxy}/orders`, {
      method: 'GET',
      headers: { ...TRACED, authorization: `Bearer ${key}` },
    });
    expect(status).toBe(200);
    const [header = '', ...more] = api.seen[0]?.headersDistinct['traceparent'] ?? [];
    expect(more).toEqual([]);
    expect(header).toMatch(new RegExp(`^00-${TRACE}-(?!${CLIENT})[0-9a-f]{16}-01$`));
    expect(api.seen[0]?.headersDistinct['tracestate']).toEqual(['vendor=1']);
    await pathTo(() => header.split('-')[2]);

    const headers = { ...TRACED, authorization: `Bearer ${ROOT_KEY}` };
    const listed = await fleet.get(`${verifier.address}/v1/apis.listKeys?apiId=shop`, headers);
    expect(listed.status).toBe(200);
    await eventually(() => collector.of('control', SERVER).length > 0);
    await pathTo(() => collector.of('control', SERVER)[0]?.parentSpanId);
    await eventually(() => controlPlane.output.includes(`"traceId":"${TRACE}"`));
  });

  test('the fast lane has no span, the rest has', async () => {
    const other = '53995c3f42cd8ad8';
    const ask = async (at: Process) => {
      const headers = { traceparent: `00-${TRACE}-${other}-01` };
      const { status } = await fleet.post(`${at.address}/v1/keys.verifyKey`, { key }, headers);
      expect(status).toBe(200);
    };
    await ask(verifier);
    const without = { ...env, LOOKUP_WAIT_MS: '5000', FAST_LANE: 'false', OTEL_SERVICE_NAME: 'without' };
    const slow = new Process('verifier/main.ts', without);
    await slow.start();
    try {
      await ask(slow);
      await eventually(() => collector.of('without', SERVER).length === 1);
      const below = collector.spans.filter(({ parentSpanId }) => parentSpanId === other);
      expect(below.map(({ of }) => of)).toEqual(['without']);
    } finally {
      await slow.stop('SIGKILL');
    }
  });
});
