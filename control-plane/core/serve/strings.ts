import { ApiError } from '#shared/rules/errors.ts';

/** The rule for strings that can be stored exactly as they were sent. */
const RULE = 'must be well-formed Unicode';

/** Throws BAD_REQUEST that names the field in which a string or a name, at any depth, is not well-formed. */
export function checkStrings(body: unknown): void {
  if (typeof body !== 'object' || body === null) return;
  for (const [field, value] of Object.entries(body)) {
    if (!field.isWellFormed()) throw new ApiError('BAD_REQUEST', `body: names of fields ${RULE}`);
    if (!isWellFormed(value)) throw new ApiError('BAD_REQUEST', `${field}: ${RULE}`);
  }
}

/** Tells whether all strings are well-formed. Not recursive, because the depth of a body is checked later. */
function isWellFormed(whole: unknown): boolean {
  const stack = [whole];
  while (stack.length > 0) {
    const value = stack.pop();
    if (typeof value === 'string' && !value.isWellFormed()) return false;
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, part] of Object.entries(value)) {
      if (!name.isWellFormed()) return false;
      stack.push(part);
    }
  }
  return true;
}
