BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'generated-7c8c8559b032-8744ef01');
INSERT INTO "studies" VALUES(2,'generated-7c8c8559b032-871d8d11');
INSERT INTO "studies" VALUES(3,'generated-7c8c8559b032-5258f1e0');
INSERT INTO "studies" VALUES(4,'generated-ca5f1ff5a029-c0ac34d7');
INSERT INTO "studies" VALUES(5,'disturbed-e44734600fc6-f4f6aa10');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MAXIMIZE',2,0);
INSERT INTO "study_directions" VALUES(3,'MAXIMIZE',3,0);
INSERT INTO "study_directions" VALUES(4,'MAXIMIZE',4,0);
INSERT INTO "study_directions" VALUES(5,'MAXIMIZE',5,0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_system_attributes" VALUES(1,1,'study:metric_names','["converged_accuracy"]');
INSERT INTO "study_system_attributes" VALUES(2,2,'study:metric_names','["converged_accuracy"]');
INSERT INTO "study_system_attributes" VALUES(3,3,'study:metric_names','["converged_accuracy"]');
INSERT INTO "study_system_attributes" VALUES(4,4,'study:metric_names','["converged_accuracy"]');
INSERT INTO "study_system_attributes" VALUES(5,5,'study:metric_names','["converged_accuracy"]');
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'workload','"generated"');
INSERT INTO "study_user_attributes" VALUES(2,1,'workers','4');
INSERT INTO "study_user_attributes" VALUES(3,1,'protocols','"bsp,asp"');
INSERT INTO "study_user_attributes" VALUES(4,1,'strategy','"paper"');
INSERT INTO "study_user_attributes" VALUES(5,1,'policy_switch_percent','12.5');
INSERT INTO "study_user_attributes" VALUES(6,2,'workload','"generated"');
INSERT INTO "study_user_attributes" VALUES(7,2,'workers','4');
INSERT INTO "study_user_attributes" VALUES(8,2,'protocols','"bsp,asp"');
INSERT INTO "study_user_attributes" VALUES(9,2,'strategy','"paper"');
INSERT INTO "study_user_attributes" VALUES(10,2,'policy_switch_percent','12.5');
INSERT INTO "study_user_attributes" VALUES(11,3,'workload','"generated"');
INSERT INTO "study_user_attributes" VALUES(12,3,'workers','4');
INSERT INTO "study_user_attributes" VALUES(13,3,'protocols','"bsp,asp"');
INSERT INTO "study_user_attributes" VALUES(14,3,'strategy','"paper"');
INSERT INTO "study_user_attributes" VALUES(15,3,'policy_switch_percent','25.0');
INSERT INTO "study_user_attributes" VALUES(16,4,'simulated_cluster','"5555555555555555555555555555555555555555555555555555555555555555"');
INSERT INTO "study_user_attributes" VALUES(17,4,'workload','"generated"');
INSERT INTO "study_user_attributes" VALUES(18,4,'workers','4');
INSERT INTO "study_user_attributes" VALUES(19,4,'protocols','"bsp,asp"');
INSERT INTO "study_user_attributes" VALUES(20,4,'strategy','"paper"');
INSERT INTO "study_user_attributes" VALUES(21,4,'policy_switch_percent','25.0');
INSERT INTO "study_user_attributes" VALUES(22,5,'online','"elastic"');
INSERT INTO "study_user_attributes" VALUES(23,5,'switch_mechanism','"restart"');
INSERT INTO "study_user_attributes" VALUES(24,5,'injections','"straggler:worker=1,at=10%,for=5s,delay=30ms,by=thread; kill:ps,at=60%"');
INSERT INTO "study_user_attributes" VALUES(25,5,'workload','"disturbed"');
INSERT INTO "study_user_attributes" VALUES(26,5,'workers','4');
INSERT INTO "study_user_attributes" VALUES(27,5,'protocols','"bsp,asp"');
INSERT INTO "study_user_attributes" VALUES(28,5,'strategy','"paper"');
INSERT INTO "study_user_attributes" VALUES(29,5,'policy_switch_percent','25.0');
CREATE TABLE syncswitch_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT syncswitch_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "syncswitch_alembic_version" VALUES('0007');
CREATE TABLE syncswitch_checkpoints (
	trial_id INTEGER NOT NULL, 
	percent DOUBLE NOT NULL, 
	path TEXT NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_syncswitch_checkpoints PRIMARY KEY (trial_id, percent), 
	CONSTRAINT ck_syncswitch_checkpoints_percent CHECK (percent BETWEEN 0 AND 100), 
	CONSTRAINT fk_syncswitch_checkpoints_trial_id FOREIGN KEY(trial_id) REFERENCES syncswitch_trials (trial_id)
);
INSERT INTO "syncswitch_checkpoints" VALUES(21,12.5,'/golden/100-0/12.5.npz','golden');
INSERT INTO "syncswitch_checkpoints" VALUES(21,50.0,'/golden/100-0/50.npz','golden');
INSERT INTO "syncswitch_checkpoints" VALUES(22,12.5,'/golden/50-0/12.5.npz','golden');
INSERT INTO "syncswitch_checkpoints" VALUES(22,50.0,'/golden/50-0/50.npz','golden');
INSERT INTO "syncswitch_checkpoints" VALUES(23,12.5,'/golden/25-0/12.5.npz','golden');
INSERT INTO "syncswitch_checkpoints" VALUES(23,50.0,'/golden/25-0/50.npz','golden');
CREATE TABLE "syncswitch_evaluations" (
	trial_id INTEGER NOT NULL, 
	worker_step BIGINT NOT NULL, 
	elapsed_seconds DOUBLE NOT NULL, 
	accuracy DOUBLE NOT NULL, 
	training_loss DOUBLE, 
	CONSTRAINT pk_syncswitch_evaluations PRIMARY KEY (trial_id, worker_step), 
	CONSTRAINT ck_syncswitch_evaluations_worker_step CHECK (worker_step >= 0), 
	CONSTRAINT ck_syncswitch_evaluations_accuracy CHECK (accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_evaluations_elapsed_seconds CHECK (elapsed_seconds >= 0), 
	CONSTRAINT fk_syncswitch_evaluations_trial_id FOREIGN KEY(trial_id) REFERENCES syncswitch_trials (trial_id)
)
 WITHOUT ROWID

;
INSERT INTO "syncswitch_evaluations" VALUES(2,600,20.0,9.47999587740763871579e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(2,1200,40.0,9.47999587740763871579e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(2,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(2,2400,80.0,9.47999587740763871579e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(2,3000,100.0,9.47999587740763871579e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(3,600,20.0,9.49926660171554804179e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(3,1200,40.0,9.49926660171554804179e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(3,1800,60.0,9.49926660171554804179e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(3,2400,80.0,9.49926660171554804179e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(3,3000,100.0,9.49926660171554804179e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(4,600,14.0,9.51441315817280530708e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(4,1200,28.0,9.51441315817280530708e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(4,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(4,2400,56.0,9.51441315817280530708e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(4,3000,70.0,9.51441315817280530708e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(5,600,14.0,9.50177088112744594461e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(5,1200,28.0,9.50177088112744594461e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(5,1800,42.0,9.50177088112744594461e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(5,2400,56.0,9.50177088112744594461e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(5,3000,70.0,9.50177088112744594461e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(6,600,11.0,9.50658436999705092063e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(6,1200,22.0,9.50658436999705092063e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(6,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(6,2400,44.0,9.50658436999705092063e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(6,3000,55.0,9.50658436999705092063e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(7,600,11.0,9.50259149821477633324e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(7,1200,22.0,9.50259149821477633324e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(7,1800,33.0,9.50259149821477633324e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(7,2400,44.0,9.50259149821477633324e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(7,3000,55.0,9.50259149821477633324e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(8,600,9.5,9.48897656799944422267e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(8,1200,19.0,9.48897656799944422267e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(8,1800,28.5,9.48897656799944422267e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(8,2400,38.0,9.48897656799944422267e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(8,3000,47.5,9.48897656799944422267e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(9,600,9.5,9.48038242311858181388e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(9,1200,19.0,9.48038242311858181388e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(9,1800,28.5,9.48038242311858181388e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(9,2400,38.0,9.48038242311858181388e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(9,3000,47.5,9.48038242311858181388e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(10,600,20.0,9.47999587740763871579e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(10,1200,40.0,9.47999587740763871579e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(10,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(10,2400,80.0,9.47999587740763871579e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(10,3000,100.0,9.47999587740763871579e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(11,600,14.0,9.51441315817280530708e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(11,1200,28.0,9.51441315817280530708e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(11,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(11,2400,56.0,9.51441315817280530708e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(11,3000,70.0,9.51441315817280530708e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(12,600,11.0,9.50658436999705092063e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(12,1200,22.0,9.50658436999705092063e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(12,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(12,2400,44.0,9.50658436999705092063e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(12,3000,55.0,9.50658436999705092063e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(13,600,9.5,9.48897656799944422267e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(13,1200,19.0,9.48897656799944422267e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(13,1800,28.5,9.48897656799944422267e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(13,2400,38.0,9.48897656799944422267e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(13,3000,47.5,9.48897656799944422267e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(14,600,8.75199999999999889155e+00,8.50280379073752312635e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(14,1200,1.75039999999999977835e+01,8.50280379073752312635e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(14,1800,26.256,8.50280379073752312635e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(14,2400,3.5007999999999995567e+01,8.50280379073752312635e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(14,3000,43.76,8.50280379073752312635e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(17,0,0.0,0.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,20,10.0,0.05,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,40,20.0,0.1,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,60,30.0,0.15,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,80,40.0,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,100,50.0,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,120,60.0,0.3,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,140,70.0,0.35,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,160,80.0,0.4,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,180,90.0,0.45,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,200,100.0,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,0,0.0,0.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,20,10.0,0.05,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,40,20.0,0.1,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,60,30.0,0.15,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,80,40.0,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,100,50.0,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,110,60.0,0.3,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,120,70.0,0.35,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,130,80.0,0.4,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,140,90.0,0.45,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,150,100.0,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,160,110.0,0.55,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,170,120.0,0.6,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,180,130.0,0.65,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,190,140.0,0.7,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,200,150.0,0.75,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(21,600,20.0,9.47999587740763871579e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(21,1200,40.0,9.47999587740763871579e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(21,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(21,2400,80.0,9.47999587740763871579e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(21,3000,100.0,9.47999587740763871579e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(22,600,14.0,9.51441315817280530708e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(22,1200,28.0,9.51441315817280530708e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(22,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(22,2400,56.0,9.51441315817280530708e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(23,600,11.0,9.50658436999705092063e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(23,1200,22.0,9.50658436999705092063e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(23,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(23,2400,44.0,9.50658436999705092063e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(24,600,20.0,9.47999587740763871579e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(24,1200,40.0,9.47999587740763871579e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(24,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(24,2400,80.0,9.47999587740763871579e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(24,3000,100.0,9.47999587740763871579e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(25,600,14.0,9.51441315817280530708e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(25,1200,28.0,9.51441315817280530708e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(25,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(25,2400,56.0,9.51441315817280530708e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(25,3000,70.0,9.51441315817280530708e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(26,600,11.0,9.50658436999705092063e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(26,1200,22.0,9.50658436999705092063e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(26,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(26,2400,44.0,9.50658436999705092063e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(26,3000,55.0,9.50658436999705092063e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(27,600,20.0,9.47999587740763871579e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(27,1200,40.0,9.47999587740763871579e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(27,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(27,2400,80.0,9.47999587740763871579e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(27,3000,100.0,9.47999587740763871579e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(28,600,14.0,9.51441315817280530708e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(28,1200,28.0,9.51441315817280530708e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(28,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(28,2400,56.0,9.51441315817280530708e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(28,3000,70.0,9.51441315817280530708e-01,0.2);
INSERT INTO "syncswitch_evaluations" VALUES(29,600,11.0,9.50658436999705092063e-01,1.0);
INSERT INTO "syncswitch_evaluations" VALUES(29,1200,22.0,9.50658436999705092063e-01,0.5);
INSERT INTO "syncswitch_evaluations" VALUES(29,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01);
INSERT INTO "syncswitch_evaluations" VALUES(29,2400,44.0,9.50658436999705092063e-01,0.25);
INSERT INTO "syncswitch_evaluations" VALUES(29,3000,55.0,9.50658436999705092063e-01,0.2);
CREATE TABLE syncswitch_events (
	trial_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	worker_step BIGINT NOT NULL, 
	elapsed_seconds DOUBLE NOT NULL, 
	reason TEXT NOT NULL, 
	worker INTEGER, 
	seconds DOUBLE, 
	CONSTRAINT pk_syncswitch_events PRIMARY KEY (trial_id, position), 
	CONSTRAINT ck_syncswitch_events_position CHECK (position >= 0), 
	CONSTRAINT ck_syncswitch_events_worker_step CHECK (worker_step >= 0), 
	CONSTRAINT ck_syncswitch_events_elapsed_seconds CHECK (elapsed_seconds >= 0), 
	CONSTRAINT ck_syncswitch_events_worker CHECK (worker >= 0), 
	CONSTRAINT ck_syncswitch_events_seconds CHECK (seconds >= 0), 
	CONSTRAINT fk_syncswitch_events_trial_id FOREIGN KEY(trial_id) REFERENCES syncswitch_trials (trial_id)
);
INSERT INTO "syncswitch_events" VALUES(27,0,'detected',400,6.25,'worker 1: 2.1 worker-steps/s, median 9.8',1,NULL);
INSERT INTO "syncswitch_events" VALUES(27,1,'removed',400,6.25,'elastic: 3 of 4 workers go on',1,0.125);
INSERT INTO "syncswitch_events" VALUES(27,2,'rebuilt',1800,40.5,'server killed; from the checkpoint of worker-step 1500',NULL,NULL);
INSERT INTO "syncswitch_events" VALUES(28,0,'detected',400,6.25,'worker 1: 2.1 worker-steps/s, median 9.8',1,NULL);
INSERT INTO "syncswitch_events" VALUES(28,1,'removed',400,6.25,'elastic: 3 of 4 workers go on',1,0.125);
INSERT INTO "syncswitch_events" VALUES(28,2,'rebuilt',1800,40.5,'server killed; from the checkpoint of worker-step 1500',NULL,NULL);
INSERT INTO "syncswitch_events" VALUES(29,0,'detected',400,6.25,'worker 1: 2.1 worker-steps/s, median 9.8',1,NULL);
INSERT INTO "syncswitch_events" VALUES(29,1,'removed',400,6.25,'elastic: 3 of 4 workers go on',1,0.125);
INSERT INTO "syncswitch_events" VALUES(29,2,'rebuilt',1800,40.5,'server killed; from the checkpoint of worker-step 1500',NULL,NULL);
CREATE TABLE "syncswitch_phases" (
	trial_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	protocol VARCHAR(64) NOT NULL, 
	start_worker_step BIGINT NOT NULL, 
	end_worker_step BIGINT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	mean_staleness DOUBLE, 
	max_staleness INTEGER, 
	worker_steps_per_second DOUBLE GENERATED ALWAYS AS (CASE WHEN seconds > 1e-9 THEN (end_worker_step - start_worker_step) / seconds END) STORED, 
	CONSTRAINT pk_syncswitch_phases PRIMARY KEY (trial_id, position), 
	CONSTRAINT ck_syncswitch_phases_end_worker_step CHECK (end_worker_step >= start_worker_step), 
	CONSTRAINT fk_syncswitch_phases_trial_id FOREIGN KEY(trial_id) REFERENCES syncswitch_trials (trial_id), 
	CONSTRAINT ck_syncswitch_phases_start_worker_step CHECK (start_worker_step >= 0), 
	CONSTRAINT ck_syncswitch_phases_seconds CHECK (seconds >= 0), 
	CONSTRAINT ck_syncswitch_phases_mean_staleness CHECK (mean_staleness >= 0), 
	CONSTRAINT ck_syncswitch_phases_max_staleness CHECK (max_staleness >= 0)
);
INSERT INTO "syncswitch_phases" VALUES(2,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(3,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(4,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(4,1,'asp',1500,3000,20.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(5,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(5,1,'asp',1500,3000,20.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(6,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(6,1,'asp',750,3000,30.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(7,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(7,1,'asp',750,3000,30.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(8,0,'bsp',0,375,12.5,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(8,1,'asp',375,3000,35.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(9,0,'bsp',0,375,12.5,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(9,1,'asp',375,3000,35.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(10,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(11,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(11,1,'asp',1500,3000,20.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(12,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(12,1,'asp',750,3000,30.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(13,0,'bsp',0,375,12.5,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(13,1,'asp',375,3000,35.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(14,0,'bsp',0,188,6.26666666666666660745e+00,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(14,1,'asp',188,3000,3.74933333333333322916e+01,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(17,0,'bsp',0,200,100.0,NULL,NULL);
INSERT INTO "syncswitch_phases" VALUES(18,0,'bsp',0,100,50.0,NULL,NULL);
INSERT INTO "syncswitch_phases" VALUES(18,1,'asp',100,200,100.0,NULL,NULL);
INSERT INTO "syncswitch_phases" VALUES(21,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(22,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(22,1,'asp',1500,2400,12.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(23,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(23,1,'asp',750,2400,22.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(24,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(25,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(25,1,'asp',1500,3000,20.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(26,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(26,1,'asp',750,3000,30.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(27,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(28,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(28,1,'asp',1500,3000,20.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(29,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(29,1,'asp',750,3000,30.0,3.0,9);
CREATE TABLE "syncswitch_policies" (
	fingerprint VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	workload VARCHAR(255) NOT NULL, 
	workers INTEGER NOT NULL, 
	total_worker_steps BIGINT NOT NULL, 
	first_protocol VARCHAR(64) NOT NULL, 
	second_protocol VARCHAR(64) NOT NULL, 
	switch_percent DOUBLE NOT NULL, 
	target_accuracy DOUBLE NOT NULL, 
	threshold DOUBLE NOT NULL, 
	mean_accuracy DOUBLE, 
	training_seconds DOUBLE, 
	baseline_seconds DOUBLE, 
	strategy VARCHAR(64) NOT NULL, 
	study VARCHAR(512) NOT NULL, 
	created_at DATETIME NOT NULL, 
	software JSON NOT NULL, 
	imported_at DATETIME, 
	confidence DOUBLE, 
	criterion VARCHAR(16) DEFAULT 'mean' NOT NULL, 
	keep DOUBLE, 
	kept_share DOUBLE, 
	baseline_kept_share DOUBLE, 
	speed_up_low DOUBLE, 
	speed_up_high DOUBLE, 
	reason VARCHAR(255), 
	CONSTRAINT pk_syncswitch_policies PRIMARY KEY (fingerprint, version), 
	CONSTRAINT ck_syncswitch_policies_target_accuracy CHECK (target_accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_training_seconds CHECK (training_seconds >= 0), 
	CONSTRAINT ck_syncswitch_policies_baseline_seconds CHECK (baseline_seconds >= 0), 
	CONSTRAINT ck_syncswitch_policies_mean_accuracy CHECK (mean_accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_threshold CHECK (threshold BETWEEN 0 AND 1), 
	CONSTRAINT fk_syncswitch_policies_fingerprint FOREIGN KEY(fingerprint) REFERENCES syncswitch_workloads (fingerprint), 
	CONSTRAINT ck_syncswitch_policies_version CHECK (version > 0), 
	CONSTRAINT uq_syncswitch_policies_fingerprint_study_created_at UNIQUE (fingerprint, study, created_at), 
	CONSTRAINT ck_syncswitch_policies_switch_percent CHECK (switch_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_policies_total_worker_steps CHECK (total_worker_steps > 0), 
	CONSTRAINT ck_syncswitch_policies_confidence CHECK (confidence BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_workers CHECK (workers > 0), 
	CONSTRAINT ck_syncswitch_policies_criterion CHECK (criterion IN ('kept', 'mean')), 
	CONSTRAINT ck_syncswitch_policies_keep CHECK (keep BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_kept_share CHECK (kept_share BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_baseline_kept_share CHECK (baseline_kept_share BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_speed_up_low CHECK (speed_up_low >= 0), 
	CONSTRAINT ck_syncswitch_policies_speed_up_high CHECK (speed_up_high >= 0)
);
INSERT INTO "syncswitch_policies" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,'generated',4,3000,'bsp','asp',12.5,9.48963123956159337879e-01,0.01,9.48467949555901301827e-01,47.5,100.0,'paper','generated-7c8c8559b032-8744ef01','2026-11-22 17:22:34.530035','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',NULL,NULL,'mean',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_policies" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',2,'generated',4,3000,'bsp','asp',12.5,9.47999587740763871579e-01,0.01,9.48897656799944422267e-01,47.5,100.0,'paper','generated-7c8c8559b032-871d8d11','2026-11-22 17:22:36.691035','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',NULL,NULL,'mean',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_policies" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,'generated',4,3000,'bsp','asp',12.5,8.98963123956159404492e-01,0.01,8.98467949555901368441e-01,47.5,100.0,'paper','generated-7c8c8559b032-8744ef01','2026-11-22 17:22:41.411909','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}','2026-11-22 17:22:41.780937',NULL,'mean',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_policies" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',4,'generated',4,3000,'bsp','asp',25.0,9.47999587740763871579e-01,0.01,9.50658436999705092063e-01,55.0,100.0,'paper','generated-7c8c8559b032-5258f1e0','2026-11-22 17:22:43.237436','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',NULL,NULL,'mean',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_policies" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',5,'generated',4,3000,'bsp','asp',25.0,9.47999587740763871579e-01,0.01,9.50658436999705092063e-01,55.0,100.0,'adaptive','adaptive','2026-11-22 17:22:43.237436','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',NULL,0.97,'mean',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_policies" VALUES('ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280',1,'generated',4,3000,'bsp','asp',25.0,9.47999587740763871579e-01,0.01,9.50658436999705092063e-01,55.0,100.0,'paper','generated-ca5f1ff5a029-c0ac34d7','2026-11-22 17:22:45.787095','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',NULL,NULL,'mean',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_policies" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',1,'disturbed',4,3000,'bsp','asp',25.0,9.47999587740763871579e-01,0.01,9.50658436999705092063e-01,55.0,100.0,'paper','disturbed-e44734600fc6-f4f6aa10','2026-11-22 17:22:47.405736','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',NULL,NULL,'mean',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_policies" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',2,'disturbed',4,3000,'bsp','asp',25.0,9.47999587740763871579e-01,0.01,9.50658436999705092063e-01,55.0,100.0,'paper','promise','2026-11-22 17:22:47.405736','{"python": "3.11.7", "syncswitch": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',NULL,0.97,'kept',0.95,0.93,0.99,1.5,2.5,'saves no time');
CREATE TABLE syncswitch_policy_aliases (
	fingerprint VARCHAR(64) NOT NULL, 
	alias VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	CONSTRAINT pk_syncswitch_policy_aliases PRIMARY KEY (fingerprint, alias), 
	CONSTRAINT fk_syncswitch_policy_aliases_fingerprint FOREIGN KEY(fingerprint, version) REFERENCES syncswitch_policies (fingerprint, version)
);
INSERT INTO "syncswitch_policy_aliases" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf','current',5);
INSERT INTO "syncswitch_policy_aliases" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf','pinned',1);
INSERT INTO "syncswitch_policy_aliases" VALUES('ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280','current',1);
INSERT INTO "syncswitch_policy_aliases" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0','current',2);
CREATE TABLE syncswitch_policy_evidence (
	fingerprint VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	study VARCHAR(512) NOT NULL, 
	trial_number INTEGER NOT NULL, 
	switch_percent DOUBLE NOT NULL, 
	replicate INTEGER NOT NULL, 
	converged_accuracy DOUBLE NOT NULL, 
	diverged BOOLEAN NOT NULL, 
	training_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_syncswitch_policy_evidence PRIMARY KEY (fingerprint, version, position), 
	CONSTRAINT ck_syncswitch_policy_evidence_converged_accuracy CHECK (converged_accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policy_evidence_switch_percent CHECK (switch_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_policy_evidence_training_seconds CHECK (training_seconds >= 0), 
	CONSTRAINT fk_syncswitch_policy_evidence_fingerprint FOREIGN KEY(fingerprint, version) REFERENCES syncswitch_policies (fingerprint, version), 
	CONSTRAINT uq_syncswitch_policy_evidence_trial UNIQUE (fingerprint, version, study, trial_number)
);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,0,'generated-7c8c8559b032-8744ef01',1,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,1,'generated-7c8c8559b032-8744ef01',2,100.0,1,9.49926660171554804179e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,2,'generated-7c8c8559b032-8744ef01',3,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,3,'generated-7c8c8559b032-8744ef01',4,50.0,1,9.50177088112744594461e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,4,'generated-7c8c8559b032-8744ef01',5,25.0,0,9.50658436999705092063e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,5,'generated-7c8c8559b032-8744ef01',6,25.0,1,9.50259149821477633324e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,6,'generated-7c8c8559b032-8744ef01',7,12.5,0,9.48897656799944422267e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',1,7,'generated-7c8c8559b032-8744ef01',8,12.5,1,9.48038242311858181388e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',2,0,'generated-7c8c8559b032-871d8d11',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',2,1,'generated-7c8c8559b032-871d8d11',1,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',2,2,'generated-7c8c8559b032-871d8d11',2,25.0,0,9.50658436999705092063e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',2,3,'generated-7c8c8559b032-871d8d11',3,12.5,0,9.48897656799944422267e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',2,4,'generated-7c8c8559b032-871d8d11',4,6.25,0,8.50280379073752312635e-01,0,43.76);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,0,'generated-7c8c8559b032-8744ef01',0,100.0,0,8.97999587740763938192e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,1,'generated-7c8c8559b032-8744ef01',1,100.0,1,8.99926660171554870792e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,2,'generated-7c8c8559b032-8744ef01',2,50.0,0,9.01441315817280597322e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,3,'generated-7c8c8559b032-8744ef01',3,50.0,1,9.00177088112744661074e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,4,'generated-7c8c8559b032-8744ef01',4,25.0,0,9.00658436999705158676e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,5,'generated-7c8c8559b032-8744ef01',5,25.0,1,9.00259149821477699937e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,6,'generated-7c8c8559b032-8744ef01',6,12.5,0,8.98897656799944488881e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',3,7,'generated-7c8c8559b032-8744ef01',7,12.5,1,8.98038242311858248001e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',4,0,'generated-7c8c8559b032-5258f1e0',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',4,1,'generated-7c8c8559b032-5258f1e0',1,50.0,0,9.51441315817280530708e-01,0,62.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',4,2,'generated-7c8c8559b032-5258f1e0',2,25.0,0,9.50658436999705092063e-01,0,47.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',5,0,'generated-7c8c8559b032-5258f1e0',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',5,1,'generated-7c8c8559b032-5258f1e0',1,50.0,0,9.51441315817280530708e-01,0,62.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',5,2,'generated-7c8c8559b032-5258f1e0',2,25.0,0,9.50658436999705092063e-01,0,47.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280',1,0,'generated-ca5f1ff5a029-c0ac34d7',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280',1,1,'generated-ca5f1ff5a029-c0ac34d7',1,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280',1,2,'generated-ca5f1ff5a029-c0ac34d7',2,25.0,0,9.50658436999705092063e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',1,0,'disturbed-e44734600fc6-f4f6aa10',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',1,1,'disturbed-e44734600fc6-f4f6aa10',1,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',1,2,'disturbed-e44734600fc6-f4f6aa10',2,25.0,0,9.50658436999705092063e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',2,0,'disturbed-e44734600fc6-f4f6aa10',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',2,1,'disturbed-e44734600fc6-f4f6aa10',1,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',2,2,'disturbed-e44734600fc6-f4f6aa10',2,25.0,0,9.50658436999705092063e-01,0,55.0);
CREATE TABLE "syncswitch_searches" (
	study VARCHAR(512) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	strategy VARCHAR(64) NOT NULL, 
	settings INTEGER NOT NULL, 
	runs INTEGER NOT NULL, 
	threshold DOUBLE NOT NULL, 
	target_accuracy DOUBLE, 
	trainer VARCHAR(64) NOT NULL, 
	base_seed BIGINT NOT NULL, 
	registered_at DATETIME NOT NULL, options JSON DEFAULT '{}' NOT NULL, 
	CONSTRAINT pk_syncswitch_searches PRIMARY KEY (study), 
	CONSTRAINT ck_syncswitch_searches_target_accuracy CHECK (target_accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_searches_settings CHECK (settings > 0), 
	CONSTRAINT ck_syncswitch_searches_threshold CHECK (threshold BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_searches_runs CHECK (runs > 0), 
	CONSTRAINT fk_syncswitch_searches_fingerprint FOREIGN KEY(fingerprint) REFERENCES syncswitch_workloads (fingerprint), 
	CONSTRAINT uq_syncswitch_searches_study_fingerprint UNIQUE (study, fingerprint)
);
INSERT INTO "syncswitch_searches" VALUES('generated-7c8c8559b032-8744ef01','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf','paper',3,2,0.01,NULL,'local',0,'2026-11-22 17:22:28.765894','{}');
INSERT INTO "syncswitch_searches" VALUES('generated-7c8c8559b032-871d8d11','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf','paper',4,1,0.01,NULL,'local',0,'2026-11-22 17:22:34.717116','{}');
INSERT INTO "syncswitch_searches" VALUES('under-way','dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723','paper',3,2,0.01,0.9,'local',1,'2026-11-22 17:22:37.206841','{}');
INSERT INTO "syncswitch_searches" VALUES('generated-7c8c8559b032-5258f1e0','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf','paper',2,1,0.01,NULL,'local',0,'2026-11-22 17:22:41.878339','{}');
INSERT INTO "syncswitch_searches" VALUES('adaptive','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf','adaptive',9,5,0.01,NULL,'local',1,'2026-11-22 17:22:43.481591','{"spread": 0.004, "shares": [0.5, 1], "is_warm": true, "from": null}');
INSERT INTO "syncswitch_searches" VALUES('generated-ca5f1ff5a029-c0ac34d7','ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280','paper',2,1,0.01,NULL,'simulated',0,'2026-11-22 17:22:43.536976','{}');
INSERT INTO "syncswitch_searches" VALUES('disturbed-e44734600fc6-f4f6aa10','e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0','paper',2,1,0.01,NULL,'local',0,'2026-11-22 17:22:46.001554','{}');
CREATE TABLE "syncswitch_trials" (
	trial_id INTEGER NOT NULL, 
	study VARCHAR(512), 
	trial_number INTEGER, 
	switch_percent DOUBLE NOT NULL, 
	replicate INTEGER NOT NULL, 
	seed BIGINT, 
	fork_from TEXT, 
	state VARCHAR(16) NOT NULL, 
	worker_steps BIGINT NOT NULL, 
	started_at DATETIME, 
	ended_at DATETIME, 
	heartbeat_at DATETIME, 
	host VARCHAR(255), 
	process_id INTEGER, 
	process_started_at DOUBLE, 
	failure TEXT, 
	converged_accuracy DOUBLE, 
	final_accuracy DOUBLE, 
	converged BOOLEAN, 
	diverged BOOLEAN, 
	stopped_early BOOLEAN, 
	training_seconds DOUBLE, 
	inherited_seconds DOUBLE, 
	switch_overhead_seconds DOUBLE, 
	software JSON, 
	fingerprint VARCHAR(64) NOT NULL, 
	source VARCHAR(1024), 
	candidate_percent DOUBLE, 
	parent_trial_id INTEGER, 
	fork_percent DOUBLE, 
	target_accuracy DOUBLE, 
	time_to_accuracy_seconds DOUBLE, online VARCHAR(16) DEFAULT 'none' NOT NULL, switch_mechanism VARCHAR(16) DEFAULT 'hot' NOT NULL, injections TEXT, speculative BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_syncswitch_trials PRIMARY KEY (trial_id), 
	CONSTRAINT ck_syncswitch_trials_converged_accuracy CHECK (converged_accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_trials_state CHECK (state IN ('running', 'complete', 'failed')), 
	CONSTRAINT uq_syncswitch_trials_study_trial_number UNIQUE (study, trial_number), 
	CONSTRAINT ck_syncswitch_trials_inherited_seconds CHECK (inherited_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_training_seconds CHECK (training_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_switch_overhead_seconds CHECK (switch_overhead_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_trial_number CHECK (trial_number >= 0), 
	CONSTRAINT ck_syncswitch_trials_replicate CHECK (replicate >= 0), 
	CONSTRAINT ck_syncswitch_trials_switch_percent CHECK (switch_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_trials_final_accuracy CHECK (final_accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_trials_worker_steps CHECK (worker_steps >= 0), 
	CONSTRAINT uq_syncswitch_trials_source UNIQUE (source), 
	CONSTRAINT fk_syncswitch_trials_study FOREIGN KEY(study, fingerprint) REFERENCES syncswitch_searches (study, fingerprint), 
	CONSTRAINT fk_syncswitch_trials_fingerprint FOREIGN KEY(fingerprint) REFERENCES syncswitch_workloads (fingerprint), 
	CONSTRAINT fk_syncswitch_trials_parent_trial_id FOREIGN KEY(parent_trial_id) REFERENCES syncswitch_trials (trial_id), 
	CONSTRAINT ck_syncswitch_trials_numbered_in_search CHECK ((study IS NULL) = (trial_number IS NULL)), 
	CONSTRAINT ck_syncswitch_trials_searched_or_imported CHECK ((study IS NULL) <> (source IS NULL)), 
	CONSTRAINT ck_syncswitch_trials_candidate_percent CHECK (candidate_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_trials_fork_percent CHECK (fork_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_trials_fork CHECK ((parent_trial_id IS NULL) = (fork_percent IS NULL)), 
	CONSTRAINT ck_syncswitch_trials_no_fork_of_itself CHECK (parent_trial_id <> trial_id), 
	CONSTRAINT ck_syncswitch_trials_target_accuracy CHECK (target_accuracy BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_trials_time_to_accuracy_seconds CHECK (time_to_accuracy_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_time_to_a_target CHECK (time_to_accuracy_seconds IS NULL OR target_accuracy IS NOT NULL), 
	CONSTRAINT ck_syncswitch_trials_running_has_owner CHECK (state <> 'running' OR (started_at IS NOT NULL AND heartbeat_at IS NOT NULL AND host IS NOT NULL AND process_id IS NOT NULL AND process_started_at IS NOT NULL)), 
	CONSTRAINT ck_syncswitch_trials_failed_has_reason CHECK (state <> 'failed' OR failure IS NOT NULL), 
	CONSTRAINT ck_syncswitch_trials_complete_is_measured CHECK (state <> 'complete' OR (converged_accuracy IS NOT NULL AND final_accuracy IS NOT NULL AND converged IS NOT NULL AND diverged IS NOT NULL AND stopped_early IS NOT NULL AND training_seconds IS NOT NULL AND inherited_seconds IS NOT NULL AND switch_overhead_seconds IS NOT NULL AND ended_at IS NOT NULL) OR (source IS NOT NULL AND diverged IS NOT NULL AND diverged))
);
INSERT INTO "syncswitch_trials" VALUES(1,'generated-7c8c8559b032-8744ef01',0,100.0,0,1875953128,NULL,'failed',0,'2026-11-22 17:22:30.134545','2026-11-22 17:22:30.219975','2026-11-22 17:22:30.134545','vm',12735,1795368141.92,'the generated server was lost',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,100.0,NULL,NULL,NULL,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(2,'generated-7c8c8559b032-8744ef01',1,100.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:32.464582','2026-11-22 17:22:32.474027','2026-11-22 17:22:32.419840','generated',12735,1795368141.92,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,100.0,NULL,NULL,9.48963123956159337879e-01,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(3,'generated-7c8c8559b032-8744ef01',2,100.0,1,970604138,NULL,'complete',3000,'2026-11-22 17:22:32.841072','2026-11-22 17:22:32.841535','2026-11-22 17:22:32.786459','generated',12735,1795368141.92,NULL,9.49926660171554804179e-01,9.49926660171554804179e-01,1,0,0,100.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,100.0,NULL,NULL,9.48963123956159337879e-01,20.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(4,'generated-7c8c8559b032-8744ef01',3,50.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:33.076485','2026-11-22 17:22:33.076880','2026-11-22 17:22:33.046008','generated',12735,1795368141.92,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,50.0,NULL,NULL,9.48963123956159337879e-01,14.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(5,'generated-7c8c8559b032-8744ef01',4,50.0,1,970604138,NULL,'complete',3000,'2026-11-22 17:22:33.306774','2026-11-22 17:22:33.315982','2026-11-22 17:22:33.277077','generated',12735,1795368141.92,NULL,9.50177088112744594461e-01,9.50177088112744594461e-01,1,0,0,70.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,50.0,NULL,NULL,9.48963123956159337879e-01,14.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(6,'generated-7c8c8559b032-8744ef01',5,25.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:33.558618','2026-11-22 17:22:33.566588','2026-11-22 17:22:33.522955','generated',12735,1795368141.92,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,25.0,NULL,NULL,9.48963123956159337879e-01,11.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(7,'generated-7c8c8559b032-8744ef01',6,25.0,1,970604138,NULL,'complete',3000,'2026-11-22 17:22:33.808635','2026-11-22 17:22:33.820216','2026-11-22 17:22:33.771876','generated',12735,1795368141.92,NULL,9.50259149821477633324e-01,9.50259149821477633324e-01,1,0,0,55.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,25.0,NULL,NULL,9.48963123956159337879e-01,11.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(8,'generated-7c8c8559b032-8744ef01',7,12.5,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:34.111630','2026-11-22 17:22:34.132229','2026-11-22 17:22:34.078557','generated',12735,1795368141.92,NULL,9.48897656799944422267e-01,9.48897656799944422267e-01,1,0,0,47.5,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,12.5,NULL,NULL,9.48963123956159337879e-01,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(9,'generated-7c8c8559b032-8744ef01',8,12.5,1,970604138,NULL,'complete',3000,'2026-11-22 17:22:34.398190','2026-11-22 17:22:34.408401','2026-11-22 17:22:34.365908','generated',12735,1795368141.92,NULL,9.48038242311858181388e-01,9.48038242311858181388e-01,1,0,0,47.5,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,12.5,NULL,NULL,9.48963123956159337879e-01,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(10,'generated-7c8c8559b032-871d8d11',0,100.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:35.322967','2026-11-22 17:22:35.330658','2026-11-22 17:22:35.278372','generated',12735,1795368141.92,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,100.0,NULL,NULL,9.47999587740763871579e-01,20.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(11,'generated-7c8c8559b032-871d8d11',1,50.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:35.646297','2026-11-22 17:22:35.660443','2026-11-22 17:22:35.602140','generated',12735,1795368141.92,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,50.0,NULL,NULL,9.47999587740763871579e-01,14.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(12,'generated-7c8c8559b032-871d8d11',2,25.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:35.934284','2026-11-22 17:22:35.945355','2026-11-22 17:22:35.878812','generated',12735,1795368141.92,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,25.0,NULL,NULL,9.47999587740763871579e-01,11.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(13,'generated-7c8c8559b032-871d8d11',3,12.5,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:36.259684','2026-11-22 17:22:36.266292','2026-11-22 17:22:36.237520','generated',12735,1795368141.92,NULL,9.48897656799944422267e-01,9.48897656799944422267e-01,1,0,0,47.5,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,12.5,NULL,NULL,9.47999587740763871579e-01,9.5,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(14,'generated-7c8c8559b032-871d8d11',4,6.25,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:36.565925','2026-11-22 17:22:36.568367','2026-11-22 17:22:36.517772','generated',12735,1795368141.92,NULL,8.50280379073752312635e-01,8.50280379073752312635e-01,1,0,0,43.76,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,6.25,NULL,NULL,9.47999587740763871579e-01,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(15,'under-way',0,100.0,0,7,NULL,'failed',0,'2026-11-22 17:22:37.218914','2026-11-22 17:22:37.227299','2026-11-22 17:22:37.218914','golden',4321,1700000000.25,'the machine went away',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723',NULL,100.0,NULL,NULL,NULL,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(16,'under-way',1,100.0,0,7,'start.npz','running',1234,'2026-11-22 17:22:37.245044',NULL,'2026-11-22 17:22:37.256135','golden',4321,1700000000.25,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723',NULL,100.0,NULL,NULL,NULL,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(17,NULL,NULL,100.0,0,NULL,NULL,'complete',200,'2020-09-13 12:26:40.000000','2020-09-13 12:28:20.000000',NULL,NULL,NULL,NULL,NULL,0.5,0.5,0,0,0,100.0,0.0,0.0,NULL,'60b2782e89b7221b2b523bf1cd3407d914662f101bd4b399e877d93c6d5bedde','golden/whole',100.0,NULL,NULL,0.5,100.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(18,NULL,NULL,50.0,0,NULL,NULL,'complete',200,'2020-09-13 12:26:40.000000','2020-09-13 12:29:10.000000',NULL,NULL,NULL,NULL,NULL,0.75,0.75,0,0,0,150.0,0.0,0.0,NULL,'60b2782e89b7221b2b523bf1cd3407d914662f101bd4b399e877d93c6d5bedde','golden/switched',NULL,NULL,NULL,0.5,100.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(19,NULL,NULL,0.0,0,NULL,NULL,'complete',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,'60b2782e89b7221b2b523bf1cd3407d914662f101bd4b399e877d93c6d5bedde','golden: 2 workers, bsp,asp, 0 %, replicate 0',0.0,NULL,NULL,0.5,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(20,'under-way',2,50.0,1,7,'half.npz','running',0,'2026-11-22 17:22:41.840308',NULL,'2026-11-22 17:22:41.840308','golden',4321,1700000000.25,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723',NULL,50.0,16,50.0,NULL,NULL,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(21,'generated-7c8c8559b032-5258f1e0',0,100.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:42.374226','2026-11-22 17:22:42.377667','2026-11-22 17:22:42.320359','golden',12735,1795368141.92,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,100.0,NULL,NULL,9.47999587740763871579e-01,20.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(22,'generated-7c8c8559b032-5258f1e0',1,50.0,0,1875953128,NULL,'complete',2400,'2026-11-22 17:22:42.763616','2026-11-22 17:22:42.770255','2026-11-22 17:22:42.715647','golden',12735,1795368141.92,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,1,62.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,50.0,NULL,NULL,9.47999587740763871579e-01,14.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(23,'generated-7c8c8559b032-5258f1e0',2,25.0,0,1875953128,NULL,'complete',2400,'2026-11-22 17:22:43.043990','2026-11-22 17:22:43.053961','2026-11-22 17:22:43.002343','golden',12735,1795368141.92,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,1,47.0,0.0,0.01,'{"syncswitch": "0"}','7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf',NULL,25.0,NULL,NULL,9.47999587740763871579e-01,11.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(24,'generated-ca5f1ff5a029-c0ac34d7',0,100.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:45.024278','2026-11-22 17:22:45.036266','2026-11-22 17:22:44.983013','generated',12735,1795368141.92,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,'{"syncswitch": "0"}','ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280',NULL,100.0,NULL,NULL,9.47999587740763871579e-01,20.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(25,'generated-ca5f1ff5a029-c0ac34d7',1,50.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:45.262756','2026-11-22 17:22:45.272396','2026-11-22 17:22:45.241709','generated',12735,1795368141.92,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,'{"syncswitch": "0"}','ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280',NULL,50.0,NULL,NULL,9.47999587740763871579e-01,14.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(26,'generated-ca5f1ff5a029-c0ac34d7',2,25.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:45.566610','2026-11-22 17:22:45.578423','2026-11-22 17:22:45.512822','generated',12735,1795368141.92,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,'{"syncswitch": "0"}','ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280',NULL,25.0,NULL,NULL,9.47999587740763871579e-01,11.0,'none','hot',NULL,0);
INSERT INTO "syncswitch_trials" VALUES(27,'disturbed-e44734600fc6-f4f6aa10',0,100.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:46.647525','2026-11-22 17:22:46.660445','2026-11-22 17:22:46.592944','generated',12735,1795368141.92,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,'{"syncswitch": "0"}','e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',NULL,100.0,NULL,NULL,9.47999587740763871579e-01,20.0,'elastic','restart','straggler:worker=1,at=10%,for=5s,delay=30ms,by=thread; kill:ps,at=60%',0);
INSERT INTO "syncswitch_trials" VALUES(28,'disturbed-e44734600fc6-f4f6aa10',1,50.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:47.001902','2026-11-22 17:22:47.014892','2026-11-22 17:22:46.970309','generated',12735,1795368141.92,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,'{"syncswitch": "0"}','e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',NULL,50.0,NULL,NULL,9.47999587740763871579e-01,14.0,'elastic','restart','straggler:worker=1,at=10%,for=5s,delay=30ms,by=thread; kill:ps,at=60%',0);
INSERT INTO "syncswitch_trials" VALUES(29,'disturbed-e44734600fc6-f4f6aa10',2,25.0,0,1875953128,NULL,'complete',3000,'2026-11-22 17:22:47.263698','2026-11-22 17:22:47.272464','2026-11-22 17:22:47.234084','generated',12735,1795368141.92,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,'{"syncswitch": "0"}','e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0',NULL,25.0,NULL,NULL,9.47999587740763871579e-01,11.0,'elastic','restart','straggler:worker=1,at=10%,for=5s,delay=30ms,by=thread; kill:ps,at=60%',0);
INSERT INTO "syncswitch_trials" VALUES(30,'under-way',3,50.0,2,8,NULL,'failed',2400,'2026-11-22 17:22:47.583964','2026-11-22 17:22:47.588393','2026-11-22 17:22:47.554837','generated',4321,1700000000.25,'no longer needed: the search is decided',NULL,NULL,NULL,NULL,NULL,62.0,0.0,0.01,'{"syncswitch": "0"}','dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723',NULL,50.0,NULL,NULL,NULL,NULL,'none','hot',NULL,1);
INSERT INTO "syncswitch_trials" VALUES(31,'under-way',4,50.0,2,8,NULL,'running',0,'2026-11-22 17:22:47.571517',NULL,'2026-11-22 17:22:47.571517','golden',4321,1700000000.25,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723',NULL,50.0,NULL,NULL,NULL,NULL,'none','hot',NULL,1);
CREATE TABLE "syncswitch_workloads" (
	fingerprint VARCHAR(64) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	reference VARCHAR(1024) NOT NULL, 
	model TEXT, 
	data_set TEXT, 
	loss TEXT, 
	optimizer TEXT, 
	total_worker_steps BIGINT NOT NULL, 
	batch_size INTEGER, 
	learning_rate DOUBLE, 
	momentum DOUBLE, 
	learning_rate_boundaries JSON, 
	metric TEXT, 
	evaluation_interval_worker_steps BIGINT, 
	workers INTEGER NOT NULL, 
	first_protocol VARCHAR(64) NOT NULL, 
	second_protocol VARCHAR(64) NOT NULL, 
	registered_at DATETIME NOT NULL, simulated_cluster VARCHAR(64), 
	CONSTRAINT pk_syncswitch_workloads PRIMARY KEY (fingerprint), 
	CONSTRAINT ck_syncswitch_workloads_batch_size CHECK (batch_size > 0), 
	CONSTRAINT ck_syncswitch_workloads_total_worker_steps CHECK (total_worker_steps > 0), 
	CONSTRAINT ck_syncswitch_workloads_workers CHECK (workers > 0)
);
INSERT INTO "syncswitch_workloads" VALUES('7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf','generated','generated','0000000000000000000000000000000000000000000000000000000000000000','none','none','{}',3000,32,0.1,0.9,'[[1500, 0.1]]','accuracy',50,4,'bsp','asp','2026-11-22 17:22:28.747146',NULL);
INSERT INTO "syncswitch_workloads" VALUES('dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723','larger','job.py:larger','0000000000000000000000000000000000000000000000000000000000000000','none','none','{}',3000,32,0.1,0.9,'[[1500, 0.1]]','accuracy',50,8,'bsp','asp','2026-11-22 17:22:37.205793',NULL);
INSERT INTO "syncswitch_workloads" VALUES('60b2782e89b7221b2b523bf1cd3407d914662f101bd4b399e877d93c6d5bedde','golden','golden',NULL,NULL,NULL,NULL,200,NULL,NULL,NULL,NULL,NULL,NULL,2,'bsp','asp','2026-11-22 17:22:41.645219',NULL);
INSERT INTO "syncswitch_workloads" VALUES('ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280','generated','generated','0000000000000000000000000000000000000000000000000000000000000000','none','none','{}',3000,32,0.1,0.9,'[[1500, 0.1]]','accuracy',50,4,'bsp','asp','2026-11-22 17:22:43.523154','5555555555555555555555555555555555555555555555555555555555555555');
INSERT INTO "syncswitch_workloads" VALUES('e44734600fc61b563d9ad60ea549bd721cad207267a33e918ade77b852a9beb0','disturbed','disturbed','dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','none','none','{}',3000,32,0.1,0.9,'[[1500, 0.1]]','accuracy',50,4,'bsp','asp','2026-11-22 17:22:45.990233',NULL);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'switch_percent',100.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(2,2,'switch_percent',100.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(3,3,'switch_percent',100.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(4,4,'switch_percent',50.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(5,5,'switch_percent',50.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(6,6,'switch_percent',25.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(7,7,'switch_percent',25.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(8,8,'switch_percent',12.5,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(9,9,'switch_percent',12.5,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(10,10,'switch_percent',100.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(11,11,'switch_percent',50.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(12,12,'switch_percent',25.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(13,13,'switch_percent',12.5,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(14,14,'switch_percent',6.25,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(15,15,'switch_percent',100.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(16,16,'switch_percent',50.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(17,17,'switch_percent',25.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(18,18,'switch_percent',100.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(19,19,'switch_percent',50.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(20,20,'switch_percent',25.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(21,21,'switch_percent',100.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(22,22,'switch_percent',50.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
INSERT INTO "trial_params" VALUES(23,23,'switch_percent',25.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 100.0, "log": false}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(2,1,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(3,1,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(4,2,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(5,2,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(6,2,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(7,2,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(8,2,'measured','{"paid_seconds": 100.0, "first_seconds": 100.0, "second_seconds": null, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(9,2,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(10,3,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(11,3,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(12,3,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(13,3,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(14,3,'measured','{"paid_seconds": 100.0, "first_seconds": 100.0, "second_seconds": null, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(15,3,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(16,4,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(17,4,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(18,4,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(19,4,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(20,4,'measured','{"paid_seconds": 70.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(21,4,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(22,5,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(23,5,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(24,5,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(25,5,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(26,5,'measured','{"paid_seconds": 70.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(27,5,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(28,6,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(29,6,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(30,6,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(31,6,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(32,6,'measured','{"paid_seconds": 55.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(33,6,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(34,7,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(35,7,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(36,7,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(37,7,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(38,7,'measured','{"paid_seconds": 55.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(39,7,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(40,8,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(41,8,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(42,8,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(43,8,'training_seconds','47.5');
INSERT INTO "trial_user_attributes" VALUES(44,8,'measured','{"paid_seconds": 47.5, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(45,8,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(46,9,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(47,9,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(48,9,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(49,9,'training_seconds','47.5');
INSERT INTO "trial_user_attributes" VALUES(50,9,'measured','{"paid_seconds": 47.5, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(51,9,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(52,10,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(53,10,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(54,10,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(55,10,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(56,10,'measured','{"paid_seconds": 100.0, "first_seconds": 100.0, "second_seconds": null, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(57,10,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(58,11,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(59,11,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(60,11,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(61,11,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(62,11,'measured','{"paid_seconds": 70.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(63,11,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(64,12,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(65,12,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(66,12,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(67,12,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(68,12,'measured','{"paid_seconds": 55.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(69,12,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(70,13,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(71,13,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(72,13,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(73,13,'training_seconds','47.5');
INSERT INTO "trial_user_attributes" VALUES(74,13,'measured','{"paid_seconds": 47.5, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(75,13,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(76,14,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(77,14,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(78,14,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(79,14,'training_seconds','43.76');
INSERT INTO "trial_user_attributes" VALUES(80,14,'measured','{"paid_seconds": 43.76, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(81,14,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(82,15,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(83,15,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(84,15,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(85,15,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(86,15,'measured','{"paid_seconds": 100.0, "first_seconds": 100.0, "second_seconds": null, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(87,15,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(88,16,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(89,16,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(90,16,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(91,16,'training_seconds','62.0');
INSERT INTO "trial_user_attributes" VALUES(92,16,'measured','{"paid_seconds": 62.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 80.0, "stopped_early": true, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(93,16,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(94,17,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(95,17,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(96,17,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(97,17,'training_seconds','47.0');
INSERT INTO "trial_user_attributes" VALUES(98,17,'measured','{"paid_seconds": 47.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 80.0, "stopped_early": true, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(99,17,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(100,18,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(101,18,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(102,18,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(103,18,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(104,18,'measured','{"paid_seconds": 100.0, "first_seconds": 100.0, "second_seconds": null, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(105,18,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(106,19,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(107,19,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(108,19,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(109,19,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(110,19,'measured','{"paid_seconds": 70.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(111,19,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(112,20,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(113,20,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(114,20,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(115,20,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(116,20,'measured','{"paid_seconds": 55.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(117,20,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(118,21,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(119,21,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(120,21,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(121,21,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(122,21,'measured','{"paid_seconds": 100.0, "first_seconds": 100.0, "second_seconds": null, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(123,21,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(124,22,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(125,22,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(126,22,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(127,22,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(128,22,'measured','{"paid_seconds": 70.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(129,22,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(130,23,'owner','{"host": "vm", "process_id": 12735, "process_started_at": 1795368141.92}');
INSERT INTO "trial_user_attributes" VALUES(131,23,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(132,23,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(133,23,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(134,23,'measured','{"paid_seconds": 55.0, "first_seconds": 100.0, "second_seconds": 40.0, "reached_percent": 100.0, "stopped_early": false, "plateau_accuracy": null}');
INSERT INTO "trial_user_attributes" VALUES(135,23,'diverged','false');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,2,0,9.47999587740763871579e-01,'FINITE');
INSERT INTO "trial_values" VALUES(2,3,0,9.49926660171554804179e-01,'FINITE');
INSERT INTO "trial_values" VALUES(3,4,0,9.51441315817280530708e-01,'FINITE');
INSERT INTO "trial_values" VALUES(4,5,0,9.50177088112744594461e-01,'FINITE');
INSERT INTO "trial_values" VALUES(5,6,0,9.50658436999705092063e-01,'FINITE');
INSERT INTO "trial_values" VALUES(6,7,0,9.50259149821477633324e-01,'FINITE');
INSERT INTO "trial_values" VALUES(7,8,0,9.48897656799944422267e-01,'FINITE');
INSERT INTO "trial_values" VALUES(8,9,0,9.48038242311858181388e-01,'FINITE');
INSERT INTO "trial_values" VALUES(9,10,0,9.47999587740763871579e-01,'FINITE');
INSERT INTO "trial_values" VALUES(10,11,0,9.51441315817280530708e-01,'FINITE');
INSERT INTO "trial_values" VALUES(11,12,0,9.50658436999705092063e-01,'FINITE');
INSERT INTO "trial_values" VALUES(12,13,0,9.48897656799944422267e-01,'FINITE');
INSERT INTO "trial_values" VALUES(13,14,0,8.50280379073752312635e-01,'FINITE');
INSERT INTO "trial_values" VALUES(14,15,0,9.47999587740763871579e-01,'FINITE');
INSERT INTO "trial_values" VALUES(15,16,0,9.51441315817280530708e-01,'FINITE');
INSERT INTO "trial_values" VALUES(16,17,0,9.50658436999705092063e-01,'FINITE');
INSERT INTO "trial_values" VALUES(17,18,0,9.47999587740763871579e-01,'FINITE');
INSERT INTO "trial_values" VALUES(18,19,0,9.51441315817280530708e-01,'FINITE');
INSERT INTO "trial_values" VALUES(19,20,0,9.50658436999705092063e-01,'FINITE');
INSERT INTO "trial_values" VALUES(20,21,0,9.47999587740763871579e-01,'FINITE');
INSERT INTO "trial_values" VALUES(21,22,0,9.51441315817280530708e-01,'FINITE');
INSERT INTO "trial_values" VALUES(22,23,0,9.50658436999705092063e-01,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'FAIL','2026-11-22 17:22:29.900790','2026-11-22 17:22:30.261912');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-22 17:22:32.327652','2026-11-22 17:22:32.553266');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-22 17:22:32.650747','2026-11-22 17:22:32.903604');
INSERT INTO "trials" VALUES(4,3,1,'COMPLETE','2026-11-22 17:22:32.954811','2026-11-22 17:22:33.139388');
INSERT INTO "trials" VALUES(5,4,1,'COMPLETE','2026-11-22 17:22:33.183157','2026-11-22 17:22:33.371062');
INSERT INTO "trials" VALUES(6,5,1,'COMPLETE','2026-11-22 17:22:33.422548','2026-11-22 17:22:33.631874');
INSERT INTO "trials" VALUES(7,6,1,'COMPLETE','2026-11-22 17:22:33.682843','2026-11-22 17:22:33.859800');
INSERT INTO "trials" VALUES(8,7,1,'COMPLETE','2026-11-22 17:22:33.957244','2026-11-22 17:22:34.195303');
INSERT INTO "trials" VALUES(9,8,1,'COMPLETE','2026-11-22 17:22:34.247981','2026-11-22 17:22:34.463067');
INSERT INTO "trials" VALUES(10,0,2,'COMPLETE','2026-11-22 17:22:35.059432','2026-11-22 17:22:35.406429');
INSERT INTO "trials" VALUES(11,1,2,'COMPLETE','2026-11-22 17:22:35.474683','2026-11-22 17:22:35.719886');
INSERT INTO "trials" VALUES(12,2,2,'COMPLETE','2026-11-22 17:22:35.788655','2026-11-22 17:22:36.014654');
INSERT INTO "trials" VALUES(13,3,2,'COMPLETE','2026-11-22 17:22:36.079465','2026-11-22 17:22:36.323521');
INSERT INTO "trials" VALUES(14,4,2,'COMPLETE','2026-11-22 17:22:36.381757','2026-11-22 17:22:36.636981');
INSERT INTO "trials" VALUES(15,0,3,'COMPLETE','2026-11-22 17:22:42.164802','2026-11-22 17:22:42.470980');
INSERT INTO "trials" VALUES(16,1,3,'COMPLETE','2026-11-22 17:22:42.559973','2026-11-22 17:22:42.823730');
INSERT INTO "trials" VALUES(17,2,3,'COMPLETE','2026-11-22 17:22:42.883385','2026-11-22 17:22:43.138823');
INSERT INTO "trials" VALUES(18,0,4,'COMPLETE','2026-11-22 17:22:43.962882','2026-11-22 17:22:45.092648');
INSERT INTO "trials" VALUES(19,1,4,'COMPLETE','2026-11-22 17:22:45.141292','2026-11-22 17:22:45.335640');
INSERT INTO "trials" VALUES(20,2,4,'COMPLETE','2026-11-22 17:22:45.390642','2026-11-22 17:22:45.667216');
INSERT INTO "trials" VALUES(21,0,5,'COMPLETE','2026-11-22 17:22:46.372645','2026-11-22 17:22:46.747316');
INSERT INTO "trials" VALUES(22,1,5,'COMPLETE','2026-11-22 17:22:46.831488','2026-11-22 17:22:47.087318');
INSERT INTO "trials" VALUES(23,2,5,'COMPLETE','2026-11-22 17:22:47.131508','2026-11-22 17:22:47.335627');
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX ix_syncswitch_workloads_name ON syncswitch_workloads (name);
CREATE INDEX ix_syncswitch_workloads_reference ON syncswitch_workloads (reference);
CREATE INDEX ix_syncswitch_searches_fingerprint ON syncswitch_searches (fingerprint);
CREATE INDEX ix_syncswitch_trials_fingerprint_candidate_percent_state ON syncswitch_trials (fingerprint, candidate_percent, state);
CREATE INDEX ix_syncswitch_trials_parent_trial_id ON syncswitch_trials (parent_trial_id);
CREATE VIEW syncswitch_trial_facts AS SELECT t.trial_id, w.name AS workload, t.fingerprint, w.workers, w.simulated_cluster, w.first_protocol, w.second_protocol, w.total_worker_steps, t.study, t.trial_number, t.source, t.candidate_percent, t.switch_percent, t.replicate, t.seed, t.parent_trial_id, t.fork_percent, t.online, t.switch_mechanism, t.injections, t.speculative, t.state, t.converged_accuracy, t.final_accuracy, t.converged, t.diverged, t.stopped_early, t.worker_steps, t.training_seconds, t.inherited_seconds, t.training_seconds - t.inherited_seconds AS paid_seconds, CASE WHEN t.state <> 'complete' OR t.diverged THEN NULL WHEN t.stopped_early AND t.worker_steps < w.total_worker_steps THEN t.training_seconds + (SELECT CASE WHEN p.seconds > 1e-9 AND p.end_worker_step > p.start_worker_step AND p.protocol = CASE WHEN t.switch_percent < 100 THEN w.second_protocol ELSE w.first_protocol END THEN (w.total_worker_steps - t.worker_steps) * p.seconds / (p.end_worker_step - p.start_worker_step) END FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id ORDER BY p.position DESC LIMIT 1) ELSE t.training_seconds END AS whole_run_seconds, t.switch_overhead_seconds, (SELECT SUM(p.seconds) FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = w.first_protocol) AS first_phase_seconds, (SELECT CASE WHEN SUM(p.seconds) > 1e-9 THEN SUM(p.end_worker_step - p.start_worker_step) / SUM(p.seconds) END FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = w.first_protocol) AS first_phase_worker_steps_per_second, (SELECT SUM(p.seconds) FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = w.second_protocol) AS second_phase_seconds, (SELECT CASE WHEN SUM(p.seconds) > 1e-9 THEN SUM(p.end_worker_step - p.start_worker_step) / SUM(p.seconds) END FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = w.second_protocol) AS second_phase_worker_steps_per_second, t.target_accuracy, t.time_to_accuracy_seconds, CASE WHEN t.target_accuracy IS NOT NULL AND t.state = 'complete' THEN t.time_to_accuracy_seconds IS NULL END AS time_to_accuracy_is_censored, t.started_at, t.ended_at, t.host, t.failure, t.software FROM syncswitch_trials AS t JOIN syncswitch_workloads AS w ON w.fingerprint = t.fingerprint;
CREATE UNIQUE INDEX uq_syncswitch_policies_study ON syncswitch_policies (study) WHERE imported_at IS NULL;
CREATE INDEX ix_syncswitch_policies_workload_fingerprint ON syncswitch_policies (workload, fingerprint);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
