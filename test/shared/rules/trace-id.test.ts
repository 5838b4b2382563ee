import { expect, test } from 'vitest';
import { traceIdIn, traceIdOf } from '#shared/rules/request-id.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';

test.each([
  ['of version 00', `00-${TRACE}-${PARENT}-01`, TRACE],
  ['with spaces around it', ` 00-${TRACE}-${PARENT}-00\t`, TRACE],
  ['of a later version, as far as it is known', `cc-${TRACE}-${PARENT}-01-what-the-future-brings`, TRACE],
  ['none', undefined, undefined],
  ['of version ff, which is forbidden', `ff-${TRACE}-${PARENT}-01`, undefined],
  ['of version 00 that goes on', `00-${TRACE}-${PARENT}-01-more`, undefined],
  ['of a later version that goes on without a dash', `01-${TRACE}-${PARENT}-01more`, undefined],
  ['of no trace', `00-${'0'.repeat(32)}-${PARENT}-01`, undefined],
  ['of no parent', `00-${TRACE}-${'0'.repeat(16)}-01`, undefined],
  ['in capitals', `00-${TRACE.toUpperCase()}-${PARENT}-01`, undefined],
  ['two of them, as Node joins them', `00-${TRACE}-${PARENT}-01, 00-${TRACE}-${PARENT}-01`, undefined],
  ['a line of a log', `00-${TRACE}-${PARENT}-01\n{"level":60}`, undefined],
])('a traceparent %s', (_, header, wanted) => {
  expect(traceIdOf(header)).toBe(wanted);
});

test('two lines of it are none', () => {
  const line = `00-${TRACE}-${PARENT}-01`;
  expect(traceIdIn(['Host', 'a', 'TraceParent', line])).toBe(TRACE);
  expect(traceIdIn(['Traceparent', line, 'traceparent', line])).toBeUndefined();
  expect(traceIdIn(['X-Of', 'traceparent', line, ''])).toBeUndefined();
});
