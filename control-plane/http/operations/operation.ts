import type { TSchema } from 'typebox';
import type { ErrorCode } from '#shared/errors.ts';

interface Said {
  /** The operation's id, where its method's name is also another's. */
  readonly id?: string;
  readonly summary: string;
  readonly description: string;
  /** Permission that the root key needs. */
  readonly permission: string;
  /** Errors of this operation besides those of every call. */
  readonly errors: readonly ErrorCode[];
}

/** An operation that is called by POST, with a body. */
export function posts<Body extends TSchema, Answer extends TSchema>(
  name: string,
  body: Body,
  answer: Answer,
  said: Said & { readonly example: object },
) {
  return { body, ...about(name, answer, said), 'x-example': said.example };
}

/** An operation that is called by GET, with a query. */
export function gets<Query extends TSchema, Answer extends TSchema>(
  name: string,
  querystring: Query,
  answer: Answer,
  said: Said,
) {
  return { querystring, ...about(name, answer, said) };
}

function about<Answer extends TSchema>(name: string, answer: Answer, said: Said) {
  const [service = '', method = ''] = name.split('.');
  return {
    tags: [service],
    operationId: said.id ?? method,
    summary: said.summary,
    description: `${said.description}\n\nNeeds the permission \`${said.permission}\`.`,
    'x-errors': said.errors,
    response: { 200: answer },
  };
}
