import { Type } from 'typebox';
import { recordNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, KeyId, period, timeOf } from '../../serve/request-parts.ts';
import { usageCounts } from '../../serve/response-parts.ts';
import { List, Time } from '../../serve/schemas/field-schemas.ts';
import { keyIdExample } from '../key-answer.ts';

export const getVerifications = operation({
  name: 'keys.getVerifications',
  summary: 'See how often a key was verified',
  description:
    'Hours go back two days, days go back a month. Verifiers report up to their USAGE_PERIOD_MS late.',
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId, ...period }),
  response: Type.Object({
    verifications: List(Type.Object({ time: Time('When the hour or day began'), ...usageCounts }), {
      description: 'In order of time, including those without verifications.',
    }),
  }),
  errors: ['NOT_FOUND'],
  example: { keyId: keyIdExample },
  async handle({ apiId, request }, { keys, usage, clock }) {
    const { keyId, granularity, start, end } = request;
    if ((await keys.lastSequence(apiId, keyId)) === undefined) throw await recordNotFound(keys, apiId, keyId);
    const span = { granularity, nowMs: clock.wallMs(), startMs: timeOf(start), endMs: timeOf(end) };
    return { verifications: await usage.series(apiId, keyId, span) };
  },
});
