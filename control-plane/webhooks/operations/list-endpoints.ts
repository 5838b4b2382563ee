import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { List } from '../../serve/schemas/field-schemas.ts';
import { EndpointView, withState } from './endpoint.ts';

export const listEndpoints = operation({
  name: 'webhooks.listEndpoints',
  summary: 'List webhook endpoints',
  description: 'Shows all of them, at most 50, in order of creation.',
  permissions: ['root.*.read_webhook'],
  request: Fields({}),
  response: Type.Object({ endpoints: List(EndpointView) }),
  errors: [],
  example: {},
  async handle(_call, services) {
    const endpoints = await services.endpoints.list();
    return { endpoints: await Promise.all(endpoints.map((endpoint) => withState(endpoint, services))) };
  },
});
