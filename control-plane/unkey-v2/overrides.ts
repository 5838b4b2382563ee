import { Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { DURATION_MAX_MS, DURATION_MIN_MS, LIMIT_MAX } from '#shared/protocol/records/limit.ts';
import { IDENTIFIER_MAX, type Override, WILDCARDS_MAX } from '#shared/protocol/records/namespace-record.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { generateId } from '#shared/rules/key-format.ts';
import { Fields, Id, List } from '../core/schema/primitives.ts';
import type { RateLimitOverrides } from '../subjects/rate-limits/rate-limit-overrides.ts';
import { DELETED, onceComplete, onlyV2, PAGE, pageOf } from './face.ts';

const Namespace = Type.String({
  ...{ minLength: 1, maxLength: IDENTIFIER_MAX },
  description: 'The name of a group of rate limits. It needs not be created.',
});
const Identifier = Type.String({
  ...{ minLength: 1, maxLength: IDENTIFIER_MAX },
  description: `The identifier, exactly; or a pattern, in which each \`*\` stands for any characters, at most ${WILDCARDS_MAX} times. If several match, the exact one applies, else the longest pattern.`,
});

const size = {
  limit: Type.Integer({
    ...{ minimum: 0, maximum: LIMIT_MAX },
    description: 'The maximum total cost in a window; 0 = nothing passes.',
  }),
  duration: Type.Integer({
    ...{ minimum: DURATION_MIN_MS, maximum: DURATION_MAX_MS },
    description: 'Length of a window, milliseconds.',
  }),
};

/** The fields of an override in requests. */
const OVERRIDE_FIELDS = { namespace: Namespace, identifier: Identifier, ...size };

const OverrideData = Type.Object({
  overrideId: Id('the override'),
  identifier: Type.String(),
  ...size,
});

const overrideData = ({ id: overrideId, ...override }: Override) => ({ overrideId, ...override });

/** The error for an override that does not exist. */
const overrideNotFound = () =>
  new ApiError('NOT_FOUND', 'the namespace has no override of this identifier; patterns count as written');

export const overrideOperations = [
  onlyV2({
    name: 'ratelimit.setOverride',
    kind: 'change',
    summary: 'Give identifiers another limit',
    description:
      'Replaces the limit that calls of `ratelimit.limit` bring, for one identifier or a pattern. Returns when the change is complete: no verifier anywhere goes by the earlier limit. A repeated call keeps the id.',
    permissions: ['root.*.set_override'],
    request: Fields(OVERRIDE_FIELDS),
    data: Type.Object({ overrideId: Id('the override') }),
    example: { namespace: 'email.send', identifier: 'premium_*', limit: 1000, duration: 60_000 },
    errors: ['CONFLICT', 'VERIFIERS_TOO_OLD'],
    async handle(call, { clock, overrides }: { clock: Clock; overrides: RateLimitOverrides }) {
      const { namespace, identifier, limit, duration } = call.request;
      if (identifier.split('*').length - 1 > WILDCARDS_MAX)
        throw new ApiError(
          'BAD_REQUEST',
          `identifier: must have at most ${WILDCARDS_MAX} *; use a broader pattern`,
        );
      call.note({}, { after: { namespace, identifier, limit, duration } });
      let overrideId = '';
      const propagation = await overrides.change(
        namespace,
        (before) => {
          const present = before.find((override) => override.identifier === identifier);
          overrideId = present?.id ?? generateId('override', clock.wallMs());
          const override = { id: overrideId, identifier, limit, duration };
          return present ? before.map((each) => (each === present ? override : each)) : [...before, override];
        },
        call.recordNotedChange(),
      );
      if (propagation) onceComplete(propagation);
      return { data: { overrideId } };
    },
  }),
  onlyV2({
    name: 'ratelimit.getOverride',
    kind: 'query',
    summary: 'Show an override',
    description: 'Finds the override by its identifier, as it was set.',
    permissions: ['root.*.read_override'],
    request: Fields({ namespace: Namespace, identifier: Identifier }),
    data: OverrideData,
    example: { namespace: 'email.send', identifier: 'premium_*' },
    errors: ['NOT_FOUND'],
    async handle({ request: { namespace, identifier } }, { overrides }: { overrides: RateLimitOverrides }) {
      const all = await overrides.list(namespace);
      const override = all.find((each) => each.identifier === identifier);
      if (!override) throw overrideNotFound();
      return { data: overrideData(override) };
    },
  }),
  onlyV2({
    name: 'ratelimit.listOverrides',
    kind: 'query',
    summary: 'List the overrides of a namespace',
    description: 'Shows them in order of creation; a namespace without overrides has an empty list.',
    permissions: ['root.*.read_override'],
    request: Fields({ namespace: Namespace, ...PAGE }),
    data: List(OverrideData),
    paged: true,
    example: { namespace: 'email.send', limit: 100 },
    errors: [],
    async handle({ request: { namespace, ...page } }, { overrides }: { overrides: RateLimitOverrides }) {
      const listing = ['ratelimit.listOverrides', namespace] as const;
      const { items, pagination } = pageOf(await overrides.list(namespace), page, listing);
      return { data: items.map(overrideData), pagination };
    },
  }),
  onlyV2({
    name: 'ratelimit.deleteOverride',
    kind: 'change',
    stops: 'always',
    summary: 'Delete an override',
    description:
      'From then on the limit that calls bring applies again. Returns when the change is complete.',
    permissions: ['root.*.delete_override'],
    request: Fields({ namespace: Namespace, identifier: Identifier }),
    data: DELETED.data,
    example: { namespace: 'email.send', identifier: 'premium_*' },
    errors: ['NOT_FOUND'],
    async handle(call, { overrides }: { overrides: RateLimitOverrides }) {
      const { namespace, identifier } = call.request;
      call.note({}, { before: { namespace, identifier } });
      const propagation = await overrides.change(
        namespace,
        (before) => {
          const others = before.filter((override) => override.identifier !== identifier);
          return others.length < before.length ? others : undefined;
        },
        call.recordNotedChange(),
      );
      if (!propagation) throw overrideNotFound();
      return DELETED.toAnswer({ propagation });
    },
  }),
];
