BEGIN TRANSACTION;
CREATE TABLE balances (
	team TEXT NOT NULL, 
	flavor TEXT NOT NULL, 
	system TEXT NOT NULL, 
	gpus INTEGER NOT NULL CHECK (gpus >= 0), 
	PRIMARY KEY (team, flavor, system)
);
INSERT INTO "balances" VALUES('vision','h100','slurm',3);
INSERT INTO "balances" VALUES('nlp','h100','kubernetes',0);
INSERT INTO "balances" VALUES('vision','a100','slurm',4);
CREATE TABLE entries (
	seq INTEGER NOT NULL, 
	transfer TEXT NOT NULL, 
	at_ms BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	step TEXT NOT NULL, 
	workload TEXT, 
	attempt INTEGER, 
	team TEXT, 
	flavor TEXT, 
	system TEXT, 
	gpus INTEGER NOT NULL, 
	detail TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (transfer)
);
INSERT INTO "entries" VALUES(1,'epoch/3',1700000000000,3,'epoch',NULL,NULL,NULL,NULL,NULL,0,'{"holder":"one"}','56b217c0b5e1acf4d76642516ce4df9f510fdd82f19b88667f7f6e8f20ca4dd5');
INSERT INTO "entries" VALUES(2,'reserve/1/slurm/main/a',1700000000000,3,'reserve','slurm/main/a',1,'vision','h100','slurm',4,'{"name":"train-a","note":"","placement":{"gpu-1":4},"submitted_ms":1700000000000,"user":"alice"}','76070d592d0ef0326cae72cb83d925d569efefe0730c57824692814807807426');
INSERT INTO "entries" VALUES(3,'run/1/slurm/main/a',1700000000000,3,'run','slurm/main/a',1,'vision','h100','slurm',-2,'{"placement":{"gpu-1":2}}','bedd7fc2724163d6908b67b66c38104a4d28d1338a975358622960f3721a9077');
INSERT INTO "entries" VALUES(4,'adjust@1700000000005/1/slurm/main/a',1700000000005,3,'adjust','slurm/main/a',1,'vision','h100','slurm',1,'{"gpus":3,"placement":{"gpu-1":3}}','c86a81e23a1e62bd3216838e20c499c6abcd0c3fb33736b59945314edad78433');
INSERT INTO "entries" VALUES(5,'adopt/1/pod/b',1700000000000,3,'adopt','pod/b',1,'nlp','h100','kubernetes',4,'{"name":"train-b","note":"found","placement":{"gpu-2":4},"submitted_ms":1700000000000,"user":"alice"}','9fc05ad6dc4d216cc8bedb381766d11c2227dec94ebeac8cdd4b1c471afc1f26');
INSERT INTO "entries" VALUES(6,'release/1/pod/b',1700000000009,3,'release','pod/b',1,'nlp','h100','kubernetes',-4,'{"note":""}','ab08f8d62a8400a942a3f6ea981381b1aae23b50896aad20ef90cdeef0aac6c6');
INSERT INTO "entries" VALUES(7,'reserve/1/slurm/main/c',1700000000002,3,'reserve','slurm/main/c',1,'vision','a100','slurm',4,'{"name":"train-c","note":"","placement":{"gpu-2":4},"submitted_ms":1700000000000,"user":"alice"}','16c5ad42bb4906252b57bd1ef390505663804ac5600666b1c2c30b4f408a606c');
INSERT INTO "entries" VALUES(8,'void/1/slurm/main/c',1700000000003,3,'void','slurm/main/c',1,'vision','a100','slurm',-4,'{"note":"not started"}','4a38380dd465caa859ca45cc47dd2c6415dc8c46dd6302e176ae6e66f5f000d4');
INSERT INTO "entries" VALUES(9,'reserve/2/slurm/main/c',1700000000004,3,'reserve','slurm/main/c',2,'vision','a100','slurm',4,'{"name":"train-c","note":"","placement":{"gpu-2":4},"submitted_ms":1700000000000,"user":"alice"}','f19ccb1b21b069265a96f5d783064cd7f655ea7c32accada7703307613b0012c');
INSERT INTO "entries" VALUES(10,'capacity/10',1700000000000,3,'capacity',NULL,NULL,NULL,'h100',NULL,0,'{"cause":"","flavor":"h100","idle":4,"node":"gpu-1","pods":0,"total":8,"unavailable":0,"unmanaged":0,"worker":4}','3cc794aed654d802b50a914cccf43f9b67ed0690fb7c39b5d767fd087f67ed18');
INSERT INTO "entries" VALUES(11,'intent/cancel/a',1700000000000,3,'intent','slurm/main/a',NULL,NULL,NULL,NULL,0,'{"detail":{"by":"alice"},"id":"cancel/a","kind":"cancel"}','7e87b55caf1a8b369087bfdaba2a2138571e0820edd3355604b5cc8b5793947d');
INSERT INTO "entries" VALUES(12,'settle/cancel/a',1700000000000,3,'settle','slurm/main/a',NULL,NULL,NULL,NULL,0,'{"id":"cancel/a","outcome":"done"}','8de81b522a6f816defededf38bbea0c3c5aa3d42d9b07b65c5f2b3166d36dc49');
INSERT INTO "entries" VALUES(13,'intent/submit/x/1',1700000000000,3,'intent','slurm/main/c',NULL,NULL,NULL,NULL,0,'{"detail":{"user":"alice"},"id":"submit/x/1","kind":"submit"}','a5ae0a582eba22aa0c1d8626d74b5480bf8d7af3b514f5b357936f40c40b790d');
INSERT INTO "entries" VALUES(14,'note/14',1700000000000,3,'note','slurm/main/a',NULL,NULL,NULL,NULL,0,'{"text":"hello"}','ddff4ee274caa93e831071ecd72274332e9685165b193fe6a9b0c3990bf0d27c');
INSERT INTO "entries" VALUES(15,'epoch/4',1700000000000,4,'epoch',NULL,NULL,NULL,NULL,NULL,0,'{"holder":"two"}','89c83834da655bc65d5e2f5b626dd2d7bee8f46960222d5aac07c98e7aac3db5');
CREATE TABLE epochs (
	epoch BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	at_ms BIGINT NOT NULL, 
	PRIMARY KEY (epoch)
);
INSERT INTO "epochs" VALUES(3,'one',1700000000000);
INSERT INTO "epochs" VALUES(4,'two',1700000000000);
CREATE TABLE grants (
	workload TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	team TEXT NOT NULL, 
	flavor TEXT NOT NULL, 
	system TEXT NOT NULL, 
	gpus INTEGER NOT NULL CHECK (gpus > 0), 
	state TEXT NOT NULL CHECK (state IN ('reserved', 'running', 'released', 'voided')), 
	placement TEXT NOT NULL, 
	user TEXT NOT NULL, 
	name TEXT NOT NULL, 
	submitted_ms BIGINT NOT NULL, 
	reserved_ms BIGINT NOT NULL, 
	running_ms BIGINT, 
	ended_ms BIGINT, 
	note TEXT NOT NULL, 
	PRIMARY KEY (workload, attempt), 
	CHECK (ended_ms IS NULL OR running_ms IS NULL OR ended_ms >= running_ms)
);
INSERT INTO "grants" VALUES('slurm/main/a',1,'vision','h100','slurm',3,'running','{"gpu-1":3}','alice','train-a',1700000000000,1700000000000,1700000000000,NULL,'');
INSERT INTO "grants" VALUES('pod/b',1,'nlp','h100','kubernetes',4,'released','{"gpu-2":4}','alice','train-b',1700000000000,1700000000000,1700000000000,1700000000009,'found');
INSERT INTO "grants" VALUES('slurm/main/c',1,'vision','a100','slurm',4,'voided','{"gpu-2":4}','alice','train-c',1700000000000,1700000000002,NULL,1700000000003,'not started');
INSERT INTO "grants" VALUES('slurm/main/c',2,'vision','a100','slurm',4,'reserved','{"gpu-2":4}','alice','train-c',1700000000000,1700000000004,NULL,NULL,'');
CREATE TABLE intents (
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	workload TEXT NOT NULL, 
	at_ms BIGINT NOT NULL, 
	detail TEXT NOT NULL, 
	settled_ms BIGINT, 
	outcome TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "intents" VALUES('cancel/a','cancel','slurm/main/a',1700000000000,'{"by":"alice"}',1700000000000,'done');
INSERT INTO "intents" VALUES('submit/x/1','submit','slurm/main/c',1700000000000,'{"user":"alice"}',NULL,'');
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema_version','1');
CREATE TABLE node_capacity (
	node TEXT NOT NULL, 
	flavor TEXT NOT NULL, 
	total INTEGER NOT NULL CHECK (total >= 0), 
	worker INTEGER NOT NULL CHECK (worker >= 0), 
	pods INTEGER NOT NULL CHECK (pods >= 0), 
	unmanaged INTEGER NOT NULL CHECK (unmanaged >= 0), 
	idle INTEGER NOT NULL CHECK (idle >= 0), 
	unavailable INTEGER NOT NULL CHECK (unavailable >= 0), 
	cause TEXT NOT NULL, 
	PRIMARY KEY (node), 
	CHECK (worker + pods + unmanaged + idle + unavailable = total)
);
INSERT INTO "node_capacity" VALUES('gpu-1','h100',8,4,0,0,4,0,'');
CREATE TABLE spans (
	seq INTEGER NOT NULL, 
	workload TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	from_ms BIGINT NOT NULL, 
	to_ms BIGINT, 
	gpus INTEGER NOT NULL CHECK (gpus > 0), 
	PRIMARY KEY (seq), 
	FOREIGN KEY(workload, attempt) REFERENCES grants (workload, attempt), 
	CHECK (to_ms IS NULL OR to_ms >= from_ms), 
	FOREIGN KEY(seq) REFERENCES entries (seq)
);
INSERT INTO "spans" VALUES(3,'slurm/main/a',1,1700000000000,1700000000005,2);
INSERT INTO "spans" VALUES(4,'slurm/main/a',1,1700000000005,NULL,3);
INSERT INTO "spans" VALUES(5,'pod/b',1,1700000000000,1700000000009,4);
CREATE INDEX entries_by_workload ON entries (workload, seq);
CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is never changed'); END;
CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is never deleted'); END;
CREATE TRIGGER entries_in_order BEFORE INSERT ON entries WHEN NEW.seq <> (SELECT COALESCE(MAX(seq), 0) + 1 FROM entries) BEGIN SELECT RAISE(ABORT, 'entries are numbered without a gap'); END;
CREATE UNIQUE INDEX grants_one_holds ON grants (workload) WHERE state IN ('reserved', 'running');
CREATE INDEX intents_by_settled ON intents (settled_ms);
CREATE INDEX spans_by_grant ON spans (workload, attempt);
CREATE INDEX spans_by_end ON spans (to_ms);
COMMIT;
