/** Returns the form in which texts are searched: in any case, and however characters with marks are composed. */
export const folded = (text: string): string => text.normalize('NFC').toLowerCase();

/**
 * Returns how other texts may write the characters of a folded one: in upper case, or a mark at a time. Scripts replace
 * these before they search, because Lua knows only the cases of A–Z.
 * @param text from `folded`
 */
export function formsOf(text: string): Readonly<Record<string, string>> {
  const forms: Record<string, string> = {};
  for (const character of text) {
    if (character < '\u0080') continue;
    let composed = '';
    for (const sign of character.normalize('NFD')) {
      const apart = composed + sign;
      composed = apart.normalize('NFC');
      for (const written of [apart, composed.toUpperCase()])
        if (written !== composed) forms[written] = composed;
    }
  }
  return forms;
}
