import { type Static, Type } from 'typebox';

/** The form of a person in responses; `Person` is its type. */
export const PersonSchema = Type.Object(
  {
    personId: Type.String({ description: 'The id of the person.' }),
    subject: Type.String({ description: 'The id that the identity provider gave the person.' }),
    name: Type.Optional(Type.String()),
    email: Type.Optional(Type.String()),
  },
  { description: 'A person who signed in at the identity provider.' },
);
/** A person who signed in at the identity provider. */
export type Person = Static<typeof PersonSchema>;
