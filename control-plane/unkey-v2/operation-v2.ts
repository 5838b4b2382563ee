import type { Static, TSchema } from 'typebox';
import type { Call } from '../http/operations/call.ts';
import { type Operation, operation } from '../http/operations/operation.ts';
import type { Services } from '../http/operations/services.ts';
import { envelope } from './envelope.ts';
import type { FaceAnswer } from './face.ts';

/** An operation that exists only in version 2 of the interface. */
interface OperationV2<Name extends string, Body extends TSchema, Data extends TSchema>
  extends Pick<
    Operation,
    'summary' | 'description' | 'permissions' | 'authorizesItself' | 'errors' | 'reads'
  > {
  readonly name: Name;
  readonly request: Body;
  readonly data: Data;
  /** True if responses have a `pagination`. */
  readonly paged?: true;
  /** A valid body. */
  readonly example: object;
  handle(call: Call<Static<Body>>, services: Services): Promise<FaceAnswer<Static<Data>>>;
}

/** Returns the operation, whose request and response are those of its only face. */
export const operationV2 = <const Name extends string, Body extends TSchema, Data extends TSchema>({
  data,
  paged,
  example,
  handle,
  ...common
}: OperationV2<Name, Body, Data>) =>
  operation({
    ...common,
    example,
    onlyV2: true,
    response: envelope({ data, ...(paged ? { paged } : {}) }),
    v2: {
      ...{ request: common.request, data, example, ...(paged ? { paged } : {}) },
      toRequest: (body) => body,
      toAnswer: (answer) => answer as FaceAnswer<Static<Data>>,
    },
    handle,
  });
