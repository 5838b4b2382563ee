import { API_ID } from '#shared/contract/api-id.ts';
import { SECRET_LENGTH_MAX } from '#shared/contract/key-format.ts';
import { wordsOf } from '#shared/lang/ip-ranges.ts';
import { type Form, flag, object, optional, type Reading, required, textLike } from './form.ts';
import {
  DEFAULT_REQUIREMENTS,
  REQUIREMENT_FORMS,
  type Requirements,
  requirementsFrom,
} from './requirements.ts';

/** A question about a key. It is a value: a caller that reuses the object must copy it before a look-up. */
export interface Question {
  readonly key: string;
  /** The API to which the key must belong; undefined = any. */
  readonly apiId: string | undefined;
  /** Address of the client that presented the key; undefined = unknown. */
  readonly clientIp: string | undefined;
  /** Names under which the verdict is counted, besides its key. */
  readonly tags: readonly string[] | undefined;
  readonly requirements: Requirements;
  /** True = the request already got a verdict: this one is not counted and costs nothing. */
  readonly isRecheck: boolean;
  /** The APIs about whose keys the caller may learn anything; undefined = all. */
  readonly allowedApis: ReadonlySet<string> | undefined;
}

/** Creates a question. Default: any API, no tags, the default requirements. */
export const questionAbout = (
  key: string,
  {
    apiId,
    clientIp,
    tags,
    requirements = DEFAULT_REQUIREMENTS,
    isRecheck = false,
    allowedApis,
  }: Partial<Omit<Question, 'key'>> = {},
): Question => ({ key, apiId, clientIp, tags, requirements, isRecheck, allowedApis });

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

const clientIp: Form<string> = {
  schema: {
    type: 'string',
    maxLength: 64,
    description:
      'Address of the client that presented the key, as the caller itself knows it. A key with `allowedIps` is refused without it.',
  },
  read(value, place, { refuse }) {
    if (typeof value === 'string' && wordsOf(value) !== undefined) return value;
    throw refuse(`${place}: must be an IPv4 or IPv6 address`);
  },
};

/** Maximum number of tags in a question. */
const TAGS_MAX = 10;
/** Maximum length of a tag, in characters, however many bytes they take in UTF-8. */
const TAG_LENGTH_MAX = 128;

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
  clientIp: optional(clientIp, undefined),
  tags: optional(tags, undefined),
};

const body = object({
  key: required(key),
  ...PARTS,
  ...REQUIREMENT_FORMS.field,
  recheck: optional(
    flag(
      'true = the request that presented the key already got a verdict, and goes on: this verification costs nothing and is not counted.',
    ),
    false,
  ),
});

/** The JSON Schema of a verifyKey body. */
export const QUESTION_SCHEMA = body.schema;

/** Parses a verifyKey body. Throws the error from `refuse`, whose message names the field and the rule. */
export function readQuestion(value: unknown, refuse: Reading['refuse']): Question {
  const read = body.read(value, '', { refuse, kind: 'field' });
  const requirements = requirementsFrom(read, 'field');
  return questionAbout(read.key, { ...read, requirements, isRecheck: read.recheck });
}

const bodyV2 = object({
  key: required(key),
  tags: PARTS.tags,
  clientIp: PARTS.clientIp,
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
    ...{ tags: read.tags, clientIp: read.clientIp },
    requirements: requirementsFrom(read, 'fieldV2'),
  });
}

const options = object({ ...PARTS, ...REQUIREMENT_FORMS.option });

/**
 * Parses the question's options in code. Throws the error from `refuse`, whose message names the option and
 * the rule.
 */
export function readOptions(value: unknown, refuse: Reading['refuse']): Omit<Question, 'key'> {
  const read = options.read(value, '', { refuse, kind: 'option' });
  const { apiId, clientIp, tags } = read;
  const requirements = requirementsFrom(read, 'option');
  return { apiId, clientIp, tags, requirements, isRecheck: false, allowedApis: undefined };
}
