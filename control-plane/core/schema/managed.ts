import { Type } from 'typebox';
import { Time } from './primitives.ts';

const LENGTH_MAX = 128;

/** The set that declares a thing, in requests. */
const ManagedBy = Type.String({
  ...{ minLength: 1, maxLength: LENGTH_MAX },
  description:
    'Name of the set of files that declares it. Calls without it may change the thing too; `driftedAt` then tells of them.',
});

/** The same of a new thing, and in a change. */
export const NEW_MANAGED = { managedBy: Type.Optional(ManagedBy) };
export const CHANGED_MANAGED = { managedBy: Type.Optional(Type.Union([ManagedBy, Type.Null()])) };

/** The same in a deletion. */
export const IF_MANAGED = {
  ifManagedBy: Type.Optional(
    Type.String({
      ...{ minLength: 1, maxLength: LENGTH_MAX },
      description: 'Delete it only if this set of files declares it. Otherwise the answer is 409.',
    }),
  ),
};

/** The same in a listing. */
export const MANAGED_FILTER = {
  managedBy: Type.Optional(
    Type.String({
      ...{ minLength: 1, maxLength: LENGTH_MAX },
      description: 'Only what this set of files declares.',
    }),
  ),
};

/** The beginning of it in a listing. */
export const MANAGED_PREFIX = {
  managedByPrefix: Type.Optional(
    Type.String({
      ...{ minLength: 1, maxLength: LENGTH_MAX },
      description:
        'Only what has a `managedBy` that begins with this, in the order of `managedBy`. A page may be short and still have a cursor.',
    }),
  ),
};

/** The same in answers. */
export const MANAGED_VIEW = {
  managedBy: Type.Optional(Type.String({ description: 'Name of the set of files that declares it.' })),
  driftedAt: Type.Optional(
    Time('When it was first changed by a call without its `managedBy`, since the last change with it'),
  ),
};

/** Returns the condition of a listing. */
export const isManagedBy =
  (name: string | undefined) =>
  ({ managedBy }: { readonly managedBy?: string }) =>
    name === undefined || managedBy === name;
