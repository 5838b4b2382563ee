/** Names that a person entered, with commas or spaces between. */
export const slugsOf = (text: string): string[] => text.split(/[\s,]+/).filter((slug) => slug !== '');
