import { channel } from 'node:diagnostics_channel';

/** Headers that a tracer adds to outgoing requests (W3C Trace Context). */
const TRACE_HEADERS: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

/**
 * Returns the trace headers that a tracer in this process writes, in lower case; none without a tracer.
 * undici would send the client's headers beside the tracer's, and a recipient of two starts a new trace
 * (ibid. §3.2.3). Tracers such as OpenTelemetry's subscribe to undici before the process's own code runs.
 */
export function writtenByTracer(): ReadonlySet<string> {
  return channel('undici:request:create').hasSubscribers ? TRACE_HEADERS : NO_HEADERS;
}

const NO_HEADERS: ReadonlySet<string> = new Set();
