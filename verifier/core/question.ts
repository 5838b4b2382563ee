import type { AskedLimit } from './allowances/limits.ts';
import type { Query } from './permissions.ts';

/** Requirements of a request: all that it asks of a key, besides to be good. */
export interface Requirements {
  /** Price in credits, where the key has any. */
  readonly cost: number;
  readonly limits: readonly AskedLimit[];
  /** Permissions that the key must have; undefined = none. */
  readonly permissions: Query | undefined;
}

export const DEFAULT_REQUIREMENTS: Requirements = Object.freeze({
  cost: 1,
  limits: [],
  permissions: undefined,
});

/** A question about a key. It is a value: whoever fills one again copies it before it is looked up. */
export interface Question {
  readonly key: string;
  /** The API that the key must be of; undefined = any. */
  readonly apiId: string | undefined;
  /** What the verdict is counted by, besides its key. */
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
