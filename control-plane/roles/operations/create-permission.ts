import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { SLUG } from '#shared/contract/slugs.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { Slug } from './permission.ts';

const SLUG_FIELD = Slug('The permission itself: letters, digits and `_:.*-`.');
const DESCRIPTION = Type.String({ maxLength: 512, description: 'What it is for.' });

export const createPermission = operation({
  name: 'permissions.createPermission',
  summary: 'Add a permission to the catalogue',
  description:
    'The catalogue is for people: it names and describes permissions. Keys and roles may have permissions that are not in it.',
  permissions: ['root.*.create_permission'],
  request: Fields({
    name: Type.String({
      ...{ minLength: 1, maxLength: 256 },
      description: 'The name for people. Without a `slug`, it is also the slug, and must have its form.',
    }),
    slug: Type.Optional(SLUG_FIELD),
    description: Type.Optional(DESCRIPTION),
  }),
  response: Type.Object({ permissionId: Id('the permission: its slug') }),
  errors: ['CONFLICT'],
  example: { name: 'files.write', description: 'Writes files' },
  async handle(call, { catalogue }) {
    const { name, slug = name, ...rest } = call.request;
    if (!SLUG.test(slug))
      throw new ApiError('BAD_REQUEST', `name: must match ${SLUG.source} if there is no slug`);
    call.note({ permissionId: slug }, { after: { name, ...rest } });
    await catalogue.create({ slug, name, ...rest });
    return { permissionId: slug };
  },
});
