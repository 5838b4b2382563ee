import { Counter, Gauge, type Registry } from 'prom-client';
import type { UpstreamStats } from '../proxy/upstream.ts';

/**
 * Registers the metrics of the requests passed on.
 * @param relays statistics of each relay, keyed by the name of its upstream server
 */
export function watchUpstreams(registry: Registry, relays: Readonly<Record<string, UpstreamStats>>): void {
  const registers = [registry];
  new Gauge({
    name: 'keyfence_relayed_in_flight',
    help: 'Open requests and WebSockets that the verifier forwarded: to the API in proxy mode, or to the control plane. At UPSTREAM_CONNECTIONS_MAX or 100 calls of the control plane, further requests get 503.',
    labelNames: ['to'],
    registers,
    collect() {
      for (const [to, { inFlight }] of Object.entries(relays)) this.set({ to }, inFlight);
    },
  });
  new Counter({
    name: 'keyfence_relay_faults_total',
    help: 'Forwarded requests that got no response, by reason. busy: too many requests at the same time. unreachable: no connection. late: no response in time. cut: the connection ended before a response. invalid: the response was not valid HTTP, or its head was larger than HEADER_BYTES_MAX. The log has details.',
    labelNames: ['to', 'fault'],
    registers,
    collect() {
      this.reset();
      for (const [to, { faults }] of Object.entries(relays)) {
        for (const [fault, count] of Object.entries(faults)) this.inc({ to, fault }, count);
      }
    },
  });
}
