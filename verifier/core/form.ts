/** The words and errors for a reader of questions. */
export interface Reading {
  /** Creates the error for a wrong value. Its message names the place and the rule, never the value. */
  readonly refuse: (message: string) => Error;
  /** Parts of a body are called fields; parts of options in code are called options. */
  readonly kind: 'field' | 'option';
}

/** The form of a value: a description from which the value is both parsed and documented. */
export interface Form<T> {
  /** Its JSON Schema. */
  readonly schema: object;
  /** True = the value may be left out. */
  readonly isOptional?: true;
  /**
   * Parses a value. Throws the error from `refuse`.
   * @param place the value's path: `ratelimits.0.name`
   */
  read(value: unknown, place: string, reading: Reading): T;
}

type Forms = Readonly<Record<string, Form<unknown>>>;
/** The type of a form's values. */
export type Read<F extends Form<unknown>> = ReturnType<F['read']>;

const NAME_SHOWN_MAX = 64;

/** Names in the library and in version 2, and the fields that they are in a body of version 1. */
const FIELD_OF_OPTION: Readonly<Record<string, string>> = {
  permissions: 'authorization.permissions',
  credits: 'remaining.cost',
};

/** Returns the message about an unknown part of a question. */
export const unknownPart = (name: string, kind: string): string => {
  const hint =
    kind === 'field' && Object.hasOwn(FIELD_OF_OPTION, name) ? `; you mean ${FIELD_OF_OPTION[name]}` : '';
  return `${name.slice(0, NAME_SHOWN_MAX)}: unknown ${kind}${hint}`;
};

/** Returns a form whose value may be left out; it is then `absent`. */
export const optional = <T, A>(form: Form<T>, absent: A): Form<T | A> => ({
  // A mapped form, such as the cost in `remaining`, is absent as another type than its schema's.
  schema:
    typeof absent === 'number' && 'type' in form.schema && form.schema.type === 'integer'
      ? { ...form.schema, default: absent }
      : form.schema,
  isOptional: true,
  read: (value, place, reading) => (value === undefined ? absent : form.read(value, place, reading)),
});

/** Returns a form whose value must be present. */
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

export const flag = (description: string): Form<boolean> => ({
  schema: { type: 'boolean', default: false, description },
  read(value, place, { refuse }) {
    if (typeof value !== 'boolean') throw refuse(`${place}: must be true or false`);
    return value;
  },
});

export const textOf = (lengthMax: number, description: string): Form<string> => ({
  schema: { type: 'string', minLength: 1, maxLength: lengthMax, description },
  read(value, place, { refuse }) {
    if (typeof value !== 'string' || value === '' || value.length > lengthMax)
      throw refuse(`${place}: must be a string of 1 to ${lengthMax} characters`);
    // A hash would be that of another text, in which half a surrogate pair is U+FFFD.
    if (!value.isWellFormed()) throw refuse(`${place}: must be well-formed Unicode`);
    return value;
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

/** Returns the form of an object with these parts and no others. */
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

/** Returns a form that converts or refuses the parsed value. */
export const converted = <T, U>(
  form: Form<T>,
  convert: (value: T, place: string, reading: Reading) => U,
): Form<U> => ({
  schema: form.schema,
  read: (value, place, reading) => convert(form.read(value, place, reading), place, reading),
});
