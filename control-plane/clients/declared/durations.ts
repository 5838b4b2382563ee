const UNIT_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;
const FORM = /^([1-9]\d{0,8})(ms|s|m|h|d)$/;

/** Returns the milliseconds of a length of time as people write it, such as `90s`; undefined = it is none. */
export function msOf(text: string): number | undefined {
  const [, amount, unit] = FORM.exec(text) ?? [];
  return amount === undefined ? undefined : Number(amount) * UNIT_MS[unit as keyof typeof UNIT_MS];
}

/** Returns a length of time in the largest unit of which it is a whole number. */
export function inWords(ms: number): string {
  const [unit, length] = Object.entries(UNIT_MS).find(([, of]) => ms >= of && ms % of === 0) ?? ['ms', 1];
  return `${ms / length}${unit}`;
}
