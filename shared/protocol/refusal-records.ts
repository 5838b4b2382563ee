/** Refusals of an API's keys in Redis: the latest ones of each of the latest refused keys. */

/** Number of refusals that are kept for a key, and of keys that are kept for an API. */
export const REFUSALS_KEPT = { ofKey: 50, keysOfApi: 2000 } as const;
/** Time after the latest refusal of a key at which its refusals are forgotten. */
export const REFUSALS_KEPT_S = 7 * 86_400;

/** A refusal as Redis has it, as JSON. */
export interface RefusalRecord {
  /** Time by the verifier's clock, in Unix milliseconds. */
  readonly t: number;
  /** Code of the verdict. */
  readonly c: string;
  /** `ip`: the key may not be used from the client's address. */
  readonly w?: 'ip' | undefined;
  /** Id of the request, as the answer had it. */
  readonly r: string;
  /** Id of the verifier in the fleet's list. */
  readonly v: string;
  /** Address of the client, if it is known. */
  readonly a?: string | undefined;
  /** Method and path of the client's request, without the query, if the gateway told them. */
  readonly p?: string | undefined;
}
