import { channel } from 'node:diagnostics_channel';

/** Headers that a tracer writes into what is sent (W3C Trace Context). */
const TRACE_HEADERS: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

/**
 * The trace headers, names in lower case, that a tracer in this process writes itself; none where there is no tracer. undici
 * would send the client's beside the tracer's, and who gets two goes on without a trace (ibid. §3.2.3). Tracers such as
 * OpenTelemetry's listen to undici from before the process's own code runs.
 */
export function writtenByTracer(): ReadonlySet<string> {
  return channel('undici:request:create').hasSubscribers ? TRACE_HEADERS : NO_HEADERS;
}

const NO_HEADERS: ReadonlySet<string> = new Set();
