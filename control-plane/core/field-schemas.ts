import { type TArrayOptions, type TSchema, Type } from 'typebox';

/** Schemas of the fields that several answers have. */

export const Sequence = Type.Integer({ minimum: 0, description: "A change's place in its API's log." });
export const Time = (description: string) =>
  Type.Integer({ description: `${description}, Unix milliseconds.` });

export const List = <Item extends TSchema>(item: Item, options: TArrayOptions = {}) =>
  Type.Immutable(Type.Array(item, options));
export const Id = (what: string) => Type.String({ description: `The id of ${what}.` });
export const Cursor = Type.Optional(
  Type.String({ description: 'For the next page; absent on the last one.' }),
);
