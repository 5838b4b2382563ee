import { wordsOf } from './ip-ranges.ts';
import { ORIGIN_LENGTH_MAX, originOf } from './origins.ts';

/**
 * The facts that are known of who presents a key; undefined = unknown. Each door fills them, and may compute a fact only
 * when it is read, because most keys are for everybody and need none.
 */
export interface Presenter {
  /** Address of the client. */
  readonly clientIp: string | undefined;
  /** The request's `Origin`, or else its `Referer`. */
  readonly origin: string | undefined;
}

/** Nothing is known. */
export const UNKNOWN_PRESENTER: Presenter = Object.freeze({ clientIp: undefined, origin: undefined });

/** Returns facts as a value that stays, also when the request that they come from is over. */
export const presenterOf = ({
  clientIp,
  origin,
}: { readonly [Name in keyof Presenter]?: string | undefined }): Presenter => ({ clientIp, origin });

interface Fact {
  readonly lengthMax: number;
  readonly description: string;
  readonly isValid: (value: string) => boolean;
  /** The rule that a value breaks which is not valid. */
  readonly rule: string;
  /** Name of the fact in the record of a refusal. */
  readonly letter: string;
  /** Returns the part of a value that the record has, if not the whole. */
  readonly noted?: (value: string) => string | undefined;
}

/** A `Referer` may be long. */
const REFERER_LENGTH_MAX = 4096;

/** Questions in bodies and in code, and the records of refusals, have the facts that these rows describe. */
export const PRESENTER_FACTS = {
  clientIp: {
    lengthMax: 64,
    description:
      'Address of the client that presented the key, as the caller itself knows it. A key with `allowedIps` is refused without it.',
    isValid: (value) => wordsOf(value) !== undefined,
    rule: 'must be an IPv4 or IPv6 address',
    letter: 'a',
  },
  origin: {
    lengthMax: REFERER_LENGTH_MAX,
    description:
      "The client's `Origin` header, or else its `Referer`, of which only the origin counts. A key with `allowedOrigins` is refused without it.",
    isValid: (value) => value.length <= REFERER_LENGTH_MAX,
    rule: `must be a string of at most ${REFERER_LENGTH_MAX} characters`,
    letter: 'o',
    noted: (value) => originOf(value)?.slice(0, ORIGIN_LENGTH_MAX),
  },
} as const satisfies Readonly<Record<keyof Presenter, Fact>>;

const FACTS = Object.entries(PRESENTER_FACTS) as [keyof Presenter, Fact][];
type Letter = (typeof PRESENTER_FACTS)[keyof Presenter]['letter'];
/** The facts in the record of a refusal. */
export type NotedFacts = { readonly [Name in Letter]?: string | undefined };

/** Returns true if nothing is known of a presenter. */
export const isUnknown = (presenter: Presenter): boolean =>
  FACTS.every(([name]) => presenter[name] === undefined);

export const notedFacts = (presenter: Presenter): NotedFacts =>
  Object.fromEntries(
    FACTS.map(([name, { letter, noted }]) => {
      const value = presenter[name];
      return [letter, value && noted ? noted(value) : value];
    }),
  );

/** Returns the facts that the record of a refusal has. */
export const factsIn = (record: NotedFacts): { readonly [Name in keyof Presenter]?: string } =>
  Object.fromEntries(
    FACTS.flatMap(([name]) => {
      const value = record[PRESENTER_FACTS[name].letter];
      return value === undefined ? [] : [[name, value]];
    }),
  );
