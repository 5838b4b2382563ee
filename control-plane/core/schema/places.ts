import { type TSchemaOptions, Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';
import { RANGES_MAX, rangeFault } from '#shared/rules/ip-ranges.ts';
import { ORIGIN_LENGTH_MAX, ORIGINS_MAX, originFault } from '#shared/rules/origins.ts';

/** Longest spelling of a range: an IPv6 address with an IPv4 address at its end, and a length. */
const LENGTH_MAX = 49;

/** Schema of a list of addresses and ranges. `checkPlaces` checks each. */
export const Ranges = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(Type.String({ minLength: 1, maxLength: LENGTH_MAX }), { maxItems: RANGES_MAX, ...options }),
  );

/** Schema of a list of origins. `checkPlaces` checks each. */
export const OriginList = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(Type.String({ minLength: 1, maxLength: ORIGIN_LENGTH_MAX }), {
      maxItems: ORIGINS_MAX,
      ...options,
    }),
  );

/** Throws BAD_REQUEST that names the item of a key's lists of places, and the rule. */
export function checkPlaces(fields: {
  readonly allowedIps?: readonly string[] | null;
  readonly allowedOrigins?: readonly string[] | null;
}): void {
  const faultOf = { allowedIps: rangeFault, allowedOrigins: originFault };
  for (const name of ['allowedIps', 'allowedOrigins'] as const)
    for (const [i, place] of fields[name]?.entries() ?? []) {
      const fault = faultOf[name](place);
      if (fault !== undefined) throw new ApiError('BAD_REQUEST', `${name}.${i}: ${fault}`);
    }
}
