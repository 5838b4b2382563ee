// An API on NestJS, on Express or Fastify. Compile it with experimentalDecorators.
import 'reflect-metadata';
import type { Server } from 'node:http';
import { Controller, Get, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ApiKey, KeyfenceGuard, KeyRules, type ValidKey } from 'keyfence/nestjs';
import type { KeyVerifier } from 'keyfence/verifier';

@Controller()
class Orders {
  @KeyRules(false)
  @Get('health')
  health() {
    return 'ok';
  }

  @Get('orders')
  orders(@ApiKey() apiKey: ValidKey) {
    return { orders: [], of: apiKey.keyId };
  }

  // The rules of one handler.
  @KeyRules({ cost: ({ params }) => Number((params as { credits: string }).credits) })
  @Get('reports/:credits')
  reports(@ApiKey() apiKey: ValidKey) {
    return apiKey;
  }
}

@Module({ controllers: [Orders] })
class Shop {}

/** @param adapter a FastifyAdapter; default: Express */
export async function createServer(verifier: KeyVerifier, adapter?: object): Promise<Server> {
  const app = adapter
    ? await NestFactory.create(Shop, adapter as never, { logger: ['error'] })
    : await NestFactory.create(Shop, { logger: ['error'] });
  app.useGlobalGuards(new KeyfenceGuard({ verifier, apiId: 'shop' }));
  await app.init();
  // Fastify's routes are ready later.
  await app.getHttpAdapter().getInstance().ready?.();
  return app.getHttpServer();
}
