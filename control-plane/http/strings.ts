import { ApiError } from '#shared/contract/errors.ts';

/** The form of a string that can be stored exactly as it was sent. */
const RULE = 'must be well-formed Unicode';

/** Throws BAD_REQUEST naming the field in which, at any depth, a string or a name is not well-formed. */
export function checkStrings(body: unknown): void {
  if (typeof body !== 'object' || body === null) return;
  for (const [field, value] of Object.entries(body)) {
    if (!field.isWellFormed()) throw new ApiError('BAD_REQUEST', `names of fields: ${RULE}`);
    if (!isWellFormed(value)) throw new ApiError('BAD_REQUEST', `${field}: ${RULE}`);
  }
}

/** Without recursion: how deep a body may be is judged later. */
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
