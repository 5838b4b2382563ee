import { LRUCache } from 'lru-cache';
import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { DURATION_MAX_MS, DURATION_MIN_MS, LIMIT_MAX, LIMIT_NAME } from '#shared/protocol/records/limit.ts';
import { type LimitRequirement, ownLimit } from '#shared/protocol/records/limits-in-memory.ts';
import { SECRET_LENGTH_MAX } from '#shared/rules/key-format.ts';
import {
  DEPTH_MAX,
  LEAVES_MAX,
  type ParsedQuery,
  parseQuery,
  QUERY_LENGTH_MAX,
  type Query,
} from '#shared/rules/permission-query.ts';
import { PRESENTER_FACTS, type Presenter, presenterOf, UNKNOWN_PRESENTER } from '#shared/rules/presenter.ts';
import { API_ID, SLUG } from '#shared/rules/slugs.ts';
import {
  converted,
  type Form,
  flag,
  list,
  object,
  optional,
  type Read,
  type Reading,
  required,
  textLike,
  wholeNumber,
} from './form.ts';

/** A requirement, with its names and forms in verifyKey bodies of v1 and v2 and in the library's options. */
interface Requirement<T, Option extends string = string> {
  readonly field: string;
  readonly inBody: Form<T>;
  readonly fieldV2: string;
  readonly inBodyV2: Form<T>;
  readonly option: Option;
  readonly inOptions: Form<T>;
  /** Converts the option's value to the field's. */
  readonly toField: (option: unknown) => unknown;
}

/** Returns a requirement with the same name in fields and options, except perhaps in v2 bodies. */
const sameName = <T, Option extends string>(
  option: Option,
  form: Form<T>,
  fieldV2: string = option,
): Requirement<T, Option> => ({
  ...{ field: option, inBody: form, fieldV2, inBodyV2: form, option, inOptions: form },
  toField: (value) => value,
});

/** Returns a requirement that is inside an object in the body. */
const within = <T, Option extends string>(
  field: string,
  description: string,
  option: Option,
  form: Form<T>,
  formV2: Form<T>,
): Requirement<T | undefined, Option> => ({
  field,
  inBody: optional(
    converted(object({ [option]: required(form) }, description), (outer) => outer[option] as T),
    undefined,
  ),
  fieldV2: option,
  inBodyV2: optional(formV2, undefined),
  option,
  inOptions: optional(form, undefined),
  toField: (value) => ({ [option]: value }),
});

const cost = converted(
  object(
    { cost: optional(wholeNumber(0, CREDITS_MAX, 'Credits to take; 0 checks without taking.'), 1) },
    'The cost of this verification, if the key has credits.',
  ),
  (remaining) => remaining.cost,
);

const limit: Form<LimitRequirement> = converted(
  object({
    name: textLike(LIMIT_NAME, 'The limit.'),
    cost: optional(
      wholeNumber(
        0,
        LIMIT_MAX,
        'The amount that this verification takes; 0 for a concurrency limit in which the request has its place already.',
      ),
      1,
    ),
    limit: optional(wholeNumber(1, LIMIT_MAX, 'The maximum amount in a window.'), undefined),
    duration: optional(
      wholeNumber(DURATION_MIN_MS, DURATION_MAX_MS, 'Length of a window, in milliseconds.'),
      undefined,
    ),
  }),
  ({ name, cost, limit, duration }, place, { refuse }) => {
    if (limit === undefined && duration === undefined) return { name, cost };
    if (limit === undefined || duration === undefined)
      throw refuse(`${place}: limit and duration must be set together`);
    return { name, cost, own: ownLimit(name, limit, duration) };
  },
);

/** Maximum number of limits in a question: a second guard names those of the key, of its identity and of its roles. */
export const QUESTION_LIMITS_MAX = 32;

const limits = converted(
  list(
    limit,
    QUESTION_LIMITS_MAX,
    'Limits to apply besides those that always apply; 400 if the key has no limit of that name. `limit` and `duration`, together, define a limit that the key does not have.',
  ),
  (limitList: readonly LimitRequirement[], place, { refuse }) => {
    const names = limitList.map(({ name }) => name);
    const double = names.find((name, i) => names.indexOf(name) < i);
    if (double !== undefined) throw refuse(`${place}: must contain ${double} only once`);
    return limitList;
  },
);

/** Queries by their texts: the questions of an API mostly use the same few. */
const queriesByText = new LRUCache<string, { readonly query: Query }>({ max: 1000 });

/** Parses a query like `parseQuery`, and remembers texts. */
export function readQuery(value: unknown): ParsedQuery {
  if (typeof value !== 'string') return parseQuery(value);
  const cached = queriesByText.get(value);
  if (cached) return cached;
  const parsed = parseQuery(value);
  if ('query' in parsed) queriesByText.set(value, parsed);
  return parsed;
}

const PERMISSIONS_TEXT = { type: 'string', minLength: 1, maxLength: QUERY_LENGTH_MAX };

const permissions: Form<Query> = {
  schema: {
    description: `A permission; \`{and: […]}\` or \`{or: […]}\` of others; or a text such as \`a AND (b OR c)\`, of at most ${QUERY_LENGTH_MAX} characters. At most ${LEAVES_MAX} permissions and ${DEPTH_MAX} levels. A permission matches \`${SLUG.source}\`, and only itself: \`*\` is no wildcard.`,
    oneOf: [
      PERMISSIONS_TEXT,
      ...['and', 'or'].map((name) => ({
        type: 'object',
        properties: {
          [name]: { type: 'array', minItems: 1, items: { description: 'A query of the same form.' } },
        },
        required: [name],
        additionalProperties: false,
      })),
    ],
  },
  read(value, place, { refuse }) {
    const read = readQuery(value);
    if ('fault' in read) throw refuse(`${place}: ${read.fault}`);
    return read.query;
  },
};

/** The form of a permission query that may only be text, as in v2 bodies. */
const permissionsText: Form<Query> = {
  schema: {
    ...PERMISSIONS_TEXT,
    description: `A permission, or a query such as \`a AND (b OR c)\`. The verdict is INSUFFICIENT_PERMISSIONS if the key lacks a permission.`,
  },
  read(value, place, reading) {
    if (typeof value !== 'string') throw reading.refuse(`${place}: must be a string`);
    return permissions.read(value, place, reading);
  },
};

/**
 * The only table of requirements. The readers of bodies and options, the client and the OpenAPI document are
 * derived from its rows.
 */
const REQUIREMENTS = {
  /** Cost in credits, if the key has credits. */
  cost: sameName('remaining', optional(cost, 1), 'credits'),
  /** Rate limits to apply besides those that always apply. */
  limits: sameName('ratelimits', optional(limits, [])),
  /** Permissions that the key must have; undefined = none. */
  permissions: within(
    'authorization',
    'Permissions that the key must have; if it lacks one, the verdict is INSUFFICIENT_PERMISSIONS.',
    'permissions',
    permissions,
    permissionsText,
  ),
};

type Rows = typeof REQUIREMENTS;
const ROWS = Object.entries(REQUIREMENTS) as [keyof Rows, Requirement<unknown>][];

/** The requirements in a question, beyond a valid key. */
export type Requirements = { readonly [Name in keyof Rows]: Read<Rows[Name]['inBody']> };

/** The name of an option with a requirement. */
type RequirementOption = Rows[keyof Rows]['option'];

export const REQUIREMENT_OPTIONS = ROWS.map(([, { option }]) => option as RequirementOption);

/** The forms of the requirements, by name. */
const REQUIREMENT_FORMS = {
  field: Object.fromEntries(ROWS.map(([, { field, inBody }]) => [field, inBody])),
  fieldV2: Object.fromEntries(ROWS.map(([, { fieldV2, inBodyV2 }]) => [fieldV2, inBodyV2])),
  option: Object.fromEntries(ROWS.map(([, { option, inOptions }]) => [option, inOptions])),
};

export const DEFAULT_REQUIREMENTS: Requirements = Object.freeze(
  Object.fromEntries(
    ROWS.map(([name, { inBody }]) => [
      name,
      inBody.read(undefined, '', { kind: 'field', refuse: (message) => new Error(message) }),
    ]),
  ) as Requirements,
);

/** Collects the requirements from a parsed body or parsed options. */
function requirementsFrom(
  read: Readonly<Record<string, unknown>>,
  kind: keyof typeof REQUIREMENT_FORMS,
): Requirements {
  const nameIn = (row: Requirement<unknown>) => row[kind];
  if (ROWS.every(([name, row]) => read[nameIn(row)] === DEFAULT_REQUIREMENTS[name]))
    return DEFAULT_REQUIREMENTS;
  return Object.fromEntries(ROWS.map(([name, row]) => [name, read[nameIn(row)]])) as Requirements;
}

/** The requirements of who only looks at all limits and credits of a key. Only its identity counts. */
export const LOOK: Requirements = Object.freeze({
  ...DEFAULT_REQUIREMENTS,
  cost: 0,
  // Not empty, so that each key counts as metered.
  limits: [{ name: '', cost: 0 }],
});

/**
 * Returns the default requirements with the permissions of a query. Throws the error from `refuse` if the
 * query is invalid.
 */
export function requiring(query: unknown, refuse: (fault: string) => Error): Requirements {
  const read = readQuery(query);
  if ('fault' in read) throw refuse(read.fault);
  return { ...DEFAULT_REQUIREMENTS, permissions: read.query };
}

/** Returns the request-body fields for the requirements in `options`. */
export const requirementFields = (options: Readonly<Partial<Record<RequirementOption, unknown>>>): object =>
  Object.fromEntries(
    ROWS.flatMap(([, { field, option, toField }]) => {
      const value = options[option as RequirementOption];
      return value === undefined ? [] : [[field, toField(value)]];
    }),
  );

/** A wish to hold what a verdict takes until the work is over. */
export interface HoldRequest {
  /** Time after which the hold ends by itself, in milliseconds. */
  readonly forMs: number;
  /** Parts of which the key must have one, or else there is no hold, because nothing can be released; undefined = none. */
  readonly onlyWith?: 'places' | 'placesOrCredits' | undefined;
  /** The rate limits of which it reserves something; undefined = none. */
  readonly names?: readonly string[] | undefined;
  /** The least credits that it takes, if the cost is not there; undefined = the whole cost. */
  readonly leastCredits?: number | undefined;
}

/** A question about a key. It is a value: a caller that reuses the object must copy it before a look-up. */
export interface Question {
  readonly key: string;
  /** The API to which the key must belong; undefined = any. */
  readonly apiId: string | undefined;
  readonly presenter: Presenter;
  /** Names under which the verdict is counted, besides its key. */
  readonly tags: readonly string[] | undefined;
  readonly requirements: Requirements;
  /** True = the request already got a verdict: this one is not counted and costs nothing. */
  readonly isRecheck: boolean;
  /** The APIs about whose keys the caller may learn anything; undefined = all. */
  readonly allowedApis: ReadonlySet<string> | undefined;
  /** undefined = the work of the request counts as over with its verdict. */
  readonly hold: HoldRequest | undefined;
}

/** Creates a question. Default: any API, an unknown presenter, no tags, the default requirements. */
export const questionAbout = (
  key: string,
  {
    apiId,
    presenter = UNKNOWN_PRESENTER,
    tags,
    requirements = DEFAULT_REQUIREMENTS,
    isRecheck = false,
    allowedApis,
    hold,
  }: Partial<Omit<Question, 'key'>> = {},
): Question => ({ key, apiId, presenter, tags, requirements, isRecheck, allowedApis, hold });

export const KEY_LENGTH_MAX = SECRET_LENGTH_MAX;

const key: Form<string> = {
  schema: {
    type: 'string',
    minLength: 1,
    maxLength: KEY_LENGTH_MAX,
    description:
      'The secret that the caller presented. One with a blank or a character beyond ASCII is NOT_FOUND.',
  },
  read(value, place, { refuse }) {
    if (typeof value !== 'string') throw refuse(`${place}: must be a string`);
    if (value.length < 1 || value.length > KEY_LENGTH_MAX)
      throw refuse(`${place}: must have 1 to ${KEY_LENGTH_MAX} characters`);
    // A lone half of a surrogate pair would have the same hash as another character.
    if (!value.isWellFormed()) throw refuse(`${place}: must be Unicode text`);
    return value;
  },
};

const apiId: Form<string> = {
  schema: {
    type: 'string',
    pattern: API_ID.source,
    description: 'The API to which the key must belong; default: any.',
  },
  read(value, place, { refuse }) {
    if (typeof value !== 'string') throw refuse(`${place}: must be a string`);
    if (!API_ID.test(value)) throw refuse(`${place}: must match ${API_ID.source}`);
    return value;
  },
};

/** The forms of what a question tells of who presents the key. */
const PRESENTER = Object.fromEntries(
  Object.entries(PRESENTER_FACTS).map(([name, { lengthMax: maxLength, description, isValid, rule }]) => {
    const form: Form<string> = {
      schema: { type: 'string', maxLength, description },
      read(value, place, { refuse }) {
        if (typeof value === 'string' && isValid(value)) return value;
        throw refuse(`${place}: ${rule}`);
      },
    };
    return [name, optional(form, undefined)];
  }),
) as { [Name in keyof Presenter]: ReturnType<typeof optional<string, undefined>> };

/** Maximum number of tags in a question. */
export const TAGS_MAX = 10;
/** Maximum length of a tag, in characters, however many bytes they take in UTF-8. */
export const TAG_LENGTH_MAX = 128;

const tags: Form<readonly string[]> = {
  schema: {
    type: 'array',
    maxItems: TAGS_MAX,
    items: { type: 'string', minLength: 1, maxLength: TAG_LENGTH_MAX },
    description:
      'Tags under which the verdict on a known key is counted, once for each; see `apis.getVerifications` of the control plane.',
  },
  read(value, place, { refuse }) {
    if (!Array.isArray(value) || value.length > TAGS_MAX)
      throw refuse(`${place}: must be a list of at most ${TAGS_MAX}`);
    return value.map((tag: unknown) => {
      if (typeof tag !== 'string') throw refuse(`${place}: must be strings`);
      if (!tag.isWellFormed()) throw refuse(`${place}: must be Unicode text`);
      const length = tag.length > 2 * TAG_LENGTH_MAX ? tag.length : [...tag].length;
      if (length < 1 || length > TAG_LENGTH_MAX)
        throw refuse(`${place}: must have 1 to ${TAG_LENGTH_MAX} characters each`);
      return tag;
    });
  },
};

/** The parts besides the key and the requirements, with the same names in bodies and in options. */
const PARTS = {
  apiId: optional(apiId, undefined),
  ...PRESENTER,
  tags: optional(tags, undefined),
};

/** Time for which work may be held, in milliseconds. */
export const HOLD_MIN_MS = 1000;
export const HOLD_MAX_MS = 3_600_000;
const HOLD_MS = 60_000;

/** Maximum number of rate limits of which a hold reserves something. */
export const HELD_LIMITS_MAX = 8;

/** The cost of work, by the names of limits, and `credits`; what is missing cost what was reserved. */
export type Costs = Readonly<Record<string, number>>;

/** The id of a hold: `hold_`, the verifier's id, and 128 random bits. */
export const HOLD_ID = /^hold_([\w.-]{1,64})_[\w-]{22}$/;

/** The name for credits among costs, which no rate limit of a hold may have. */
export const CREDITS = 'credits';

const amount = (description: string) => wholeNumber(0, LIMIT_MAX, description);

/** The least that a hold takes. 0 would accept a key that has nothing left. */
const atLeast = optional(
  wholeNumber(
    1,
    CREDITS_MAX,
    'Takes what is there, but no less than this; default: all or nothing. The answer says how much.',
  ),
  undefined,
);

/** Throws if a hold would take at least more than it asks for. */
function checkLeast(
  least: number | undefined,
  cost: number,
  place: string,
  most: string,
  { refuse }: Pick<Reading, 'refuse'>,
): void {
  if (least !== undefined && least > cost) throw refuse(`${place}: must be at most ${most}, ${cost}`);
}

const heldLimits = converted(
  list(
    object({
      name: textLike(LIMIT_NAME, 'The limit.'),
      cost: required(amount('The most that the work can take of it.')),
      atLeast,
    }),
    HELD_LIMITS_MAX,
    'Rate limits of which to reserve an amount, in place of what the question takes of them; 400 if the key has none of that name, unless `onlyIfNeeded`.',
  ),
  (limitList, place, reading) => {
    const { refuse } = reading;
    const names = limitList.map(({ name }) => name);
    const double = names.find((name, i) => name === CREDITS || names.indexOf(name) < i);
    if (double === CREDITS) throw refuse(`${place}: a rate limit of the name ${CREDITS} cannot be held`);
    if (double !== undefined) throw refuse(`${place}: must contain ${double} only once`);
    for (const [i, { cost, atLeast }] of limitList.entries())
      checkLeast(atLeast, cost, `${place}.${i}.atLeast`, 'cost', reading);
    return limitList;
  },
);

const hold = object(
  {
    credits: optional(
      wholeNumber(
        0,
        CREDITS_MAX,
        'Credits to reserve, in place of `remaining.cost`. What the work did not need comes back with `keys.release`.',
      ),
      undefined,
    ),
    atLeast,
    forMs: optional(
      wholeNumber(
        HOLD_MIN_MS,
        HOLD_MAX_MS,
        'Time after which the hold ends by itself and is charged in full, in milliseconds.',
      ),
      HOLD_MS,
    ),
    ratelimits: optional(heldLimits, []),
    onlyIfNeeded: optional(
      flag(
        'true = no hold if there is nothing to release: the key has no concurrency limit, none of these rate limits, and no credits or the question reserves none.',
      ),
      false,
    ),
  },
  'Takes a place in each concurrency limit of the key, and reserves credits and parts of rate limits, until `keys.release`.',
);

/** Returns the requirements and the hold of a question. Throws if `cost` and the hold's credits are both set. */
function heldTo(
  requirements: Requirements,
  request: Read<typeof hold> | undefined,
  costName: string | false,
  reading: Pick<Reading, 'refuse'>,
): Pick<Question, 'requirements' | 'hold'> {
  if (request === undefined) return { requirements, hold: undefined };
  const { refuse } = reading;
  const { credits: cost, atLeast: leastCredits, forMs, ratelimits, onlyIfNeeded } = request;
  if (leastCredits !== undefined && cost === undefined) throw refuse('hold.atLeast: needs hold.credits');
  checkLeast(leastCredits, cost ?? 0, 'hold.atLeast', 'hold.credits', reading);
  if (cost !== undefined && costName)
    throw refuse(`hold.credits: takes the place of ${costName}; send one of them`);
  const onlyWith = onlyIfNeeded ? (cost === undefined ? 'places' : 'placesOrCredits') : undefined;
  const names = ratelimits.map(({ name }) => name);
  const double = requirements.limits.find(({ name }) => names.includes(name));
  if (double)
    throw refuse(`hold.ratelimits: takes the place of ratelimits; name ${double.name} in one of them`);
  const held = ratelimits.map(({ name, cost, atLeast: least }) => ({
    ...{ name, cost, isHeld: true, isOptional: onlyIfNeeded },
    ...(least !== undefined && { least }),
  }));
  return {
    requirements:
      cost === undefined && held.length === 0
        ? requirements
        : { ...requirements, cost: cost ?? requirements.cost, limits: [...requirements.limits, ...held] },
    hold: {
      ...{ forMs, onlyWith },
      ...(names.length > 0 && { names }),
      ...(leastCredits !== undefined && { leastCredits }),
    },
  };
}

/** Returns the fields of a body for a question with a hold, besides those of its requirements. */
export function holdFields({ hold, requirements }: Pick<Question, 'requirements' | 'hold'>): object {
  if (hold === undefined) return {};
  const { forMs, onlyWith, leastCredits: atLeast } = hold;
  const held = requirements.limits.filter(({ isHeld }) => isHeld);
  const ratelimits =
    held.length === 0 ? undefined : held.map(({ name, cost, least }) => ({ name, cost, atLeast: least }));
  if (onlyWith === 'places') return { hold: { forMs, ratelimits, onlyIfNeeded: true } };
  const fields = {
    credits: requirements.cost,
    atLeast,
    forMs,
    ratelimits,
    ...(onlyWith && { onlyIfNeeded: true }),
  };
  return { remaining: undefined, hold: fields };
}

const body = object({
  key: required(key),
  ...PARTS,
  ...REQUIREMENT_FORMS.field,
  recheck: optional(
    flag(
      'true = the request that presented the key already got a verdict and is still running: this verification costs nothing and is not counted.',
    ),
    false,
  ),
  hold: optional(hold, undefined),
});

/** The JSON Schema of a verifyKey body. */
export const QUESTION_SCHEMA = body.schema;

/** Parses a verifyKey body. Throws the error from `refuse`, whose message names the field and the rule. */
export function readQuestion(value: unknown, refuse: Reading['refuse']): Question {
  const read = body.read(value, '', { refuse, kind: 'field' });
  const { recheck: isRecheck, hold } = read;
  if (hold && isRecheck)
    throw refuse('hold: cannot be combined with recheck; the request has its hold already');
  const costName = 'remaining' in (value as object) && 'remaining.cost';
  const held = heldTo(requirementsFrom(read, 'field'), hold, costName, { refuse });
  const { key, apiId, tags } = read;
  return questionAbout(key, { apiId, presenter: presenterOf(read), tags, isRecheck, ...held });
}

/** The form of what work cost, by the names of limits. */
const costs: Form<Costs> = {
  schema: {
    type: 'object',
    maxProperties: HELD_LIMITS_MAX + 1,
    propertyNames: { pattern: LIMIT_NAME.source },
    additionalProperties: { type: 'integer', minimum: 0, maximum: CREDITS_MAX },
    description:
      'What the work cost, by the names of the rate limits that the hold reserves; `credits` means the same as `cost`. What a name is missing for costs what was reserved.',
  },
  read(value, place, reading) {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw reading.refuse(`${place}: must be an object of names and amounts`);
    for (const [name, amount] of Object.entries(value)) {
      if (!LIMIT_NAME.test(name)) throw reading.refuse(`${place}: names must match ${LIMIT_NAME.source}`);
      creditsCost.read(amount, `${place}.${name}`, reading);
    }
    return value as Costs;
  },
};

const creditsCost = wholeNumber(
  0,
  CREDITS_MAX,
  'Credits that the work cost; default: what was reserved. What is above the reservation is charged as far as it is there.',
);

const release = object({
  hold: required(
    textLike(HOLD_ID, 'The id of the hold, from the answer of `keys.verifyKey` of the same verifier.'),
  ),
  cost: optional(creditsCost, undefined),
  costs: optional(costs, undefined),
});

/** The JSON Schema of a release body. */
export const RELEASE_SCHEMA = release.schema;

/** Parses a release body. Throws the error from `refuse`, whose message names the field and the rule. */
export function readRelease(
  value: unknown,
  refuse: Reading['refuse'],
): { readonly hold: string; readonly costs: Costs } {
  const { hold, cost, costs = {} } = release.read(value, '', { refuse, kind: 'field' });
  if (cost === undefined) return { hold, costs };
  if (Object.hasOwn(costs, CREDITS))
    throw refuse(`cost: means the same as costs.${CREDITS}; send one of them`);
  return { hold, costs: { ...costs, [CREDITS]: cost } };
}

const bodyV2 = object({
  key: required(key),
  tags: PARTS.tags,
  ...PRESENTER,
  ...REQUIREMENT_FORMS.fieldV2,
  migrationId: optional(
    textLike(/^.{1,256}$/su, 'Of no effect: keys that were migrated are found without it.'),
    undefined,
  ),
});

/** The JSON Schema of a verifyKey body in v2 of the interface. */
export const QUESTION_SCHEMA_V2 = bodyV2.schema;

/**
 * Parses a verifyKey body in v2 of the interface. Throws the error from `refuse`, whose message names the
 * field and the rule.
 */
export function readQuestionV2(value: unknown, refuse: Reading['refuse']): Question {
  const read = bodyV2.read(value, '', { refuse, kind: 'field' });
  return questionAbout(read.key, {
    ...{ tags: read.tags, presenter: presenterOf(read) },
    requirements: requirementsFrom(read, 'fieldV2'),
  });
}

const options = object({ ...PARTS, ...REQUIREMENT_FORMS.option, hold: optional(hold, undefined) });

/**
 * Parses the question's options in code. Throws the error from `refuse`, whose message names the option and
 * the rule.
 */
export function readOptions(value: unknown, refuse: Reading['refuse']): Omit<Question, 'key'> {
  const read = options.read(value, '', { refuse, kind: 'option' });
  const { apiId, tags, hold } = read;
  const costName = 'remaining' in (value as object) && 'remaining.cost';
  const held = heldTo(requirementsFrom(read, 'option'), hold, costName, { refuse });
  return { apiId, presenter: presenterOf(read), tags, isRecheck: false, allowedApis: undefined, ...held };
}
