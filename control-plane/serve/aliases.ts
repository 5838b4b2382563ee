import { ApiError } from '#shared/contract/errors.ts';
import { ALIASES, type Alias } from '#shared/contract/key-record.ts';

/**
 * Renames aliases in a request to the fields' own names. Throws BAD_REQUEST if two names of a field have
 * different values.
 */
export function withoutAliases<Given extends object>(request: Given): Omit<Given, Alias> {
  const fields: Record<string, unknown> = Object.fromEntries(Object.entries(request));
  for (const [alias, name] of Object.entries(ALIASES)) {
    const value = fields[alias];
    delete fields[alias];
    if (value === undefined) continue;
    if (fields[name] !== undefined && fields[name] !== value) {
      throw new ApiError('BAD_REQUEST', `${alias}: must equal ${name}; give only one of the two`);
    }
    fields[name] = value;
  }
  return fields as Omit<Given, Alias>;
}
