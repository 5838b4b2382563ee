/** Most tags of a question. */
export const TAGS_MAX = 10;
/** Characters, of whatever length as UTF-8. */
export const TAG_LENGTH_MAX = 128;

/** A question's tags, or why they can be none. */
export type Tags = { readonly tags: readonly string[] | undefined } | { readonly fault: string };

/** Judges what a question says it is to be counted by. A fault names the field and the rule, never the value. */
export function readTags(given: unknown): Tags {
  if (given === undefined) return { tags: undefined };
  if (!Array.isArray(given) || given.length > TAGS_MAX)
    return { fault: `tags: must be a list of at most ${TAGS_MAX}` };
  const tags: string[] = [];
  for (const tag of given as unknown[]) {
    if (typeof tag !== 'string') return { fault: 'tags: must be strings' };
    if (!tag.isWellFormed()) return { fault: 'tags: must be Unicode text' };
    const length = tag.length > 2 * TAG_LENGTH_MAX ? tag.length : [...tag].length;
    if (length < 1 || length > TAG_LENGTH_MAX)
      return { fault: `tags: must have 1 to ${TAG_LENGTH_MAX} characters each` };
    tags.push(tag);
  }
  return { tags };
}
