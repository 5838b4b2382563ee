/** Words and errors of who asks. */
export interface Reading {
  /** Makes the error of a wrong value. Its message names the place and the rule, never the value. */
  readonly refuse: (message: string) => Error;
  /** Parts of a body are called fields, those of options in code options. */
  readonly kind: 'field' | 'option';
}

/** Form of a value: one description, from which it is read and documented. */
export interface Form<T> {
  /** As JSON Schema. */
  readonly schema: object;
  /** True if the value may be left out. */
  readonly isOptional?: true;
  /**
   * Reads a value. Throws what `refuse` makes.
   * @param place name of the value, with those that it is in: `ratelimits.0.name`
   */
  read(value: unknown, place: string, reading: Reading): T;
}

type Forms = Readonly<Record<string, Form<unknown>>>;
/** Type of the values that a form reads. */
export type Read<F extends Form<unknown>> = ReturnType<F['read']>;

const NAME_SHOWN_MAX = 64;

/** The message about a part of a question that does not exist. */
export const unknownPart = (name: string, kind: string): string =>
  `${name.slice(0, NAME_SHOWN_MAX)}: unknown ${kind}`;

/** A value that may be left out; then it is `absent`. */
export const optional = <T, A>(form: Form<T>, absent: A): Form<T | A> => ({
  schema: typeof absent === 'number' ? { ...form.schema, default: absent } : form.schema,
  isOptional: true,
  read: (value, place, reading) => (value === undefined ? absent : form.read(value, place, reading)),
});

/** A value that must be there. */
export const required = <T>(form: Form<T>): Form<T> => ({
  schema: form.schema,
  read(value, place, reading) {
    if (value === undefined) throw reading.refuse(`${place}: required`);
    return form.read(value, place, reading);
  },
});

export const wholeNumber = (minimum: number, maximum: number, description: string): Form<number> => ({
  schema: { type: 'integer', minimum, maximum, description },
  read(value, place, { refuse }) {
    if (typeof value === 'number' && Number.isInteger(value) && value >= minimum && value <= maximum)
      return value;
    throw refuse(`${place}: must be a whole number from ${minimum} to ${maximum}`);
  },
});

export const textLike = (pattern: RegExp, description: string): Form<string> => ({
  schema: { type: 'string', pattern: pattern.source, description },
  read(value, place, { refuse }) {
    if (typeof value === 'string' && pattern.test(value)) return value;
    throw refuse(`${place}: must match ${pattern.source}`);
  },
});

export const list = <T>(item: Form<T>, maxItems: number, description: string): Form<T[]> => ({
  schema: { type: 'array', maxItems, items: item.schema, description },
  read(value, place, reading) {
    if (!Array.isArray(value) || value.length > maxItems)
      throw reading.refuse(`${place}: must be a list of at most ${maxItems}`);
    return value.map((element: unknown, i) => item.read(element, `${place}.${i}`, reading));
  },
});

/** An object of these parts, and no others. */
export function object<F extends Forms>(
  parts: F,
  description?: string,
): Form<{ readonly [Name in keyof F]: Read<F[Name]> }> {
  const forms = Object.entries(parts);
  const requiredNames = forms.filter(([, { isOptional }]) => !isOptional).map(([name]) => name);
  return {
    schema: {
      type: 'object',
      ...(description === undefined ? {} : { description }),
      properties: Object.fromEntries(forms.map(([name, { schema }]) => [name, schema])),
      ...(requiredNames.length > 0 ? { required: requiredNames } : {}),
      additionalProperties: false,
    },
    read(value, place, reading) {
      if (typeof value !== 'object' || value === null || Array.isArray(value))
        throw reading.refuse(`${place}: must be an object`);
      const placeOf = (name: string) => (place === '' ? name : `${place}.${name}`);
      const stray = Object.keys(value).find((name) => !Object.hasOwn(parts, name));
      if (stray !== undefined) throw reading.refuse(unknownPart(placeOf(stray), reading.kind));
      const record = value as Record<string, unknown>;
      const read = forms.map(([name, form]) => [name, form.read(record[name], placeOf(name), reading)]);
      return Object.fromEntries(read) as { [Name in keyof F]: Read<F[Name]> };
    },
  };
}

/** A form whose value is made into another, or refused. */
export const converted = <T, U>(
  form: Form<T>,
  convert: (value: T, place: string, reading: Reading) => U,
): Form<U> => ({
  schema: form.schema,
  read: (value, place, reading) => convert(form.read(value, place, reading), place, reading),
});
