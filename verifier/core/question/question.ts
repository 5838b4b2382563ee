import { API_ID } from '#shared/contract/api-id.ts';
import { type Form, object, optional, type Reading, required, textLike } from './form.ts';
import {
  DEFAULT_REQUIREMENTS,
  REQUIREMENT_FORMS,
  type Requirements,
  requirementsFrom,
} from './requirements.ts';

/** A question about a key. It is a value: whoever fills one again copies it before it is looked up. */
export interface Question {
  readonly key: string;
  /** The API that the key must be of; undefined = any. */
  readonly apiId: string | undefined;
  /** Names by which the verdict is counted, besides its key. */
  readonly tags: readonly string[] | undefined;
  readonly requirements: Requirements;
  /** True if the request was answered before: its verdict is counted nowhere and costs nothing. */
  readonly isRecheck: boolean;
}

/** Makes a question: of any API, without tags and with the default requirements where `rest` says nothing else. */
export const questionAbout = (
  key: string,
  {
    apiId,
    tags,
    requirements = DEFAULT_REQUIREMENTS,
    isRecheck = false,
  }: Partial<Omit<Question, 'key'>> = {},
): Question => ({ key, apiId, tags, requirements, isRecheck });

export const KEY_LENGTH_MAX = 512;

const key: Form<string> = {
  schema: { type: 'string', minLength: 1, maxLength: KEY_LENGTH_MAX, description: 'What the caller showed.' },
  read(value, place, { refuse }) {
    if (typeof value !== 'string') throw refuse(`${place}: must be a string`);
    if (value.length < 1 || value.length > KEY_LENGTH_MAX)
      throw refuse(`${place}: must have 1 to ${KEY_LENGTH_MAX} characters`);
    // A lone half of a surrogate pair would be hashed as another character.
    if (!value.isWellFormed()) throw refuse(`${place}: must be Unicode text`);
    return value;
  },
};

const apiId: Form<string> = {
  schema: {
    type: 'string',
    pattern: API_ID.source,
    description: 'The API that the key must be of; any when absent.',
  },
  read(value, place, { refuse }) {
    if (typeof value !== 'string') throw refuse(`${place}: must be a string`);
    if (!API_ID.test(value)) throw refuse(`${place}: must match ${API_ID.source}`);
    return value;
  },
};

/** Most tags of a question. */
const TAGS_MAX = 10;
/** Characters, of whatever length as UTF-8. */
const TAG_LENGTH_MAX = 128;

const tags: Form<readonly string[]> = {
  schema: {
    type: 'array',
    maxItems: TAGS_MAX,
    items: { type: 'string', minLength: 1, maxLength: TAG_LENGTH_MAX },
    description:
      'What a verdict on a known key is counted by, once for each; see `apis.getVerifications` of the control plane.',
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

/** Parts besides the key and the requirements, under the same names wherever the question is asked. */
const PARTS = { apiId: optional(apiId, undefined), tags: optional(tags, undefined) };

const body = object({ key: required(key), ...PARTS, ...REQUIREMENT_FORMS.field });

/** JSON Schema of a body of verifyKey. */
export const QUESTION_SCHEMA = body.schema;

/** Reads a body of verifyKey. Throws what `refuse` makes of a message, which names the field and the rule. */
export function readQuestion(value: unknown, refuse: Reading['refuse']): Question {
  const read = body.read(value, '', { refuse, kind: 'field' });
  const { key, apiId, tags } = read;
  return { key, apiId, tags, requirements: requirementsFrom(read, 'field'), isRecheck: false };
}

const bodyV2 = object({
  key: required(key),
  tags: PARTS.tags,
  ...REQUIREMENT_FORMS.fieldV2,
  migrationId: optional(
    textLike(/^.{1,256}$/su, 'Of no effect: keys that were migrated are found without it.'),
    undefined,
  ),
});

/** JSON Schema of a body of verifyKey in the second generation of the interface. */
export const QUESTION_SCHEMA_V2 = bodyV2.schema;

/** Reads such a body. Throws what `refuse` makes of a message, which names the field and the rule. */
export function readQuestionV2(value: unknown, refuse: Reading['refuse']): Question {
  const read = bodyV2.read(value, '', { refuse, kind: 'field' });
  const { key, tags } = read;
  return { key, apiId: undefined, tags, requirements: requirementsFrom(read, 'fieldV2'), isRecheck: false };
}

const options = object({ ...PARTS, ...REQUIREMENT_FORMS.option });

/** Reads the rest of a question from options in code, likewise. */
export function readOptions(value: unknown, refuse: Reading['refuse']): Omit<Question, 'key'> {
  const read = options.read(value, '', { refuse, kind: 'option' });
  const { apiId, tags } = read;
  return { apiId, tags, requirements: requirementsFrom(read, 'option'), isRecheck: false };
}
