import { type TSchemaOptions, Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { RANGES_MAX, rangeFault } from '#shared/lang/ip-ranges.ts';

/** Longest spelling of a range: an IPv6 address with an IPv4 address at its end, and a length. */
const LENGTH_MAX = 49;

/** Schema of a list of addresses and ranges. `checkRanges` checks each. */
export const Ranges = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(Type.String({ minLength: 1, maxLength: LENGTH_MAX }), { maxItems: RANGES_MAX, ...options }),
  );

/** Throws BAD_REQUEST that names the item and the rule. */
export function checkRanges(ranges: readonly string[] | null | undefined): void {
  for (const [i, range] of ranges?.entries() ?? []) {
    const fault = rangeFault(range);
    if (fault !== undefined) throw new ApiError('BAD_REQUEST', `allowedIps.${i}: ${fault}`);
  }
}
