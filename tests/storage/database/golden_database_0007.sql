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
INSERT INTO "studies" VALUES(1,'generated-45c7b69715af-7df6e790');
INSERT INTO "studies" VALUES(2,'generated-45c7b69715af-af85acb3');
INSERT INTO "studies" VALUES(3,'generated-7d04573e59a1-5dd918f8');
INSERT INTO "studies" VALUES(4,'disturbed-99d656530382-9ea9f3a7');
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
INSERT INTO "study_user_attributes" VALUES(11,3,'simulated_cluster','"5555555555555555555555555555555555555555555555555555555555555555"');
INSERT INTO "study_user_attributes" VALUES(12,3,'workload','"generated"');
INSERT INTO "study_user_attributes" VALUES(13,3,'workers','4');
INSERT INTO "study_user_attributes" VALUES(14,3,'protocols','"bsp,asp"');
INSERT INTO "study_user_attributes" VALUES(15,3,'strategy','"paper"');
INSERT INTO "study_user_attributes" VALUES(16,3,'policy_switch_percent','25.0');
INSERT INTO "study_user_attributes" VALUES(17,4,'online','"elastic"');
INSERT INTO "study_user_attributes" VALUES(18,4,'switch_mechanism','"restart"');
INSERT INTO "study_user_attributes" VALUES(19,4,'injections','"straggler:worker=1,at=10%,for=5s,delay=30ms; kill:ps,at=60%"');
INSERT INTO "study_user_attributes" VALUES(20,4,'workload','"disturbed"');
INSERT INTO "study_user_attributes" VALUES(21,4,'workers','4');
INSERT INTO "study_user_attributes" VALUES(22,4,'protocols','"bsp,asp"');
INSERT INTO "study_user_attributes" VALUES(23,4,'strategy','"paper"');
INSERT INTO "study_user_attributes" VALUES(24,4,'policy_switch_percent','25.0');
CREATE TABLE syncswitch_alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT syncswitch_alembic_version_pkc PRIMARY KEY (version_num));
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
INSERT INTO "syncswitch_checkpoints" VALUES(17,50.0,'/runs/50.npz','chief');
CREATE TABLE syncswitch_evaluations (
	trial_id INTEGER NOT NULL, 
	worker_step BIGINT NOT NULL, 
	elapsed_seconds DOUBLE NOT NULL, 
	accuracy DOUBLE NOT NULL, 
	training_loss DOUBLE, 
	further JSON, 
	CONSTRAINT pk_syncswitch_evaluations PRIMARY KEY (trial_id, worker_step), 
	CONSTRAINT ck_syncswitch_evaluations_worker_step CHECK (worker_step >= 0), 
	CONSTRAINT ck_syncswitch_evaluations_elapsed_seconds CHECK (elapsed_seconds >= 0), 
	CONSTRAINT ck_syncswitch_evaluations_accuracy CHECK (accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT fk_syncswitch_evaluations_trial_id FOREIGN KEY(trial_id) REFERENCES syncswitch_trials (trial_id)
)
 WITHOUT ROWID

;
INSERT INTO "syncswitch_evaluations" VALUES(2,600,20.0,9.47999587740763871579e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(2,1200,40.0,9.47999587740763871579e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(2,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(2,2400,80.0,9.47999587740763871579e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(2,3000,100.0,9.47999587740763871579e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(3,600,20.0,9.49926660171554804179e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(3,1200,40.0,9.49926660171554804179e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(3,1800,60.0,9.49926660171554804179e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(3,2400,80.0,9.49926660171554804179e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(3,3000,100.0,9.49926660171554804179e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(4,600,14.0,9.51441315817280530708e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(4,1200,28.0,9.51441315817280530708e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(4,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(4,2400,56.0,9.51441315817280530708e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(4,3000,70.0,9.51441315817280530708e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(5,600,14.0,9.50177088112744594461e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(5,1200,28.0,9.50177088112744594461e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(5,1800,42.0,9.50177088112744594461e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(5,2400,56.0,9.50177088112744594461e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(5,3000,70.0,9.50177088112744594461e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(6,600,11.0,9.50658436999705092063e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(6,1200,22.0,9.50658436999705092063e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(6,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(6,2400,44.0,9.50658436999705092063e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(6,3000,55.0,9.50658436999705092063e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(7,600,11.0,9.50259149821477633324e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(7,1200,22.0,9.50259149821477633324e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(7,1800,33.0,9.50259149821477633324e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(7,2400,44.0,9.50259149821477633324e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(7,3000,55.0,9.50259149821477633324e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(8,600,9.5,9.48897656799944422267e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(8,1200,19.0,9.48897656799944422267e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(8,1800,28.5,9.48897656799944422267e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(8,2400,38.0,9.48897656799944422267e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(8,3000,47.5,9.48897656799944422267e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(9,600,9.5,9.48038242311858181388e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(9,1200,19.0,9.48038242311858181388e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(9,1800,28.5,9.48038242311858181388e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(9,2400,38.0,9.48038242311858181388e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(9,3000,47.5,9.48038242311858181388e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(10,600,20.0,9.47999587740763871579e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(10,1200,40.0,9.47999587740763871579e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(10,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(10,2400,80.0,9.47999587740763871579e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(10,3000,100.0,9.47999587740763871579e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(11,600,14.0,9.51441315817280530708e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(11,1200,28.0,9.51441315817280530708e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(11,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(11,2400,56.0,9.51441315817280530708e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(11,3000,70.0,9.51441315817280530708e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(12,600,11.0,9.50658436999705092063e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(12,1200,22.0,9.50658436999705092063e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(12,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(12,2400,44.0,9.50658436999705092063e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(12,3000,55.0,9.50658436999705092063e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(13,600,9.5,9.48897656799944422267e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(13,1200,19.0,9.48897656799944422267e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(13,1800,28.5,9.48897656799944422267e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(13,2400,38.0,9.48897656799944422267e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(13,3000,47.5,9.48897656799944422267e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(14,600,8.75199999999999889155e+00,8.50280379073752312635e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(14,1200,1.75039999999999977835e+01,8.50280379073752312635e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(14,1800,26.256,8.50280379073752312635e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(14,2400,3.5007999999999995567e+01,8.50280379073752312635e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(14,3000,43.76,8.50280379073752312635e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,250,0.75,0.5,9e999,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,500,1.5,0.8,NULL,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(17,1000,2.5,0.9,0.3,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,500,1.5,0.8,0.7,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(18,1000,2.5,0.9,0.3,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,0,0.0,0.45,2.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,2000,500.0,0.675,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,4000,1000.0,0.7875,6.66666666666666629659e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,4250,1062.5,0.84375,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,4500,1125.0,8.71875000000000066613e-01,0.4,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,4750,1187.5,0.8859375,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,5000,1250.0,0.89296875,2.85714285714285698425e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,5250,1312.5,0.896484375,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,5500,1375.0,8.98242187500000066613e-01,2.22222222222222209886e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,5750,1437.5,0.89912109375,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,6000,1500.0,0.899560546875,1.81818181818181823228e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,6250,1562.5,0.8997802734375,1.66666666666666657414e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,6500,1625.0,8.99890136718750066613e-01,1.53846153846153854694e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,6750,1687.5,0.899945068359375,1.42857142857142849212e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,7000,1750.0,8.99972534179687477795e-01,1.33333333333333331482e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,7250,1812.5,8.9998626708984375e-01,0.125,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,7500,1875.0,8.99993133544921941613e-01,1.17647058823529410132e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,7750,1937.5,0.899996566772461,1.11111111111111104943e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(22,8000,2000.0,8.99998283386230446545e-01,1.05263157894736836261e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,0,0.0,0.45,2.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,2000,500.0,0.675,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,4000,1000.0,0.7875,6.66666666666666629659e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,4250,1062.5,0.84375,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,4500,1125.0,8.71875000000000066613e-01,0.4,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,4750,1187.5,0.8859375,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,5000,1250.0,0.89296875,2.85714285714285698425e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,5250,1312.5,0.896484375,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,5500,1375.0,8.98242187500000066613e-01,2.22222222222222209886e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,5750,1437.5,0.89912109375,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,6000,1500.0,0.899560546875,1.81818181818181823228e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,6250,1562.5,0.8997802734375,1.66666666666666657414e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,6500,1625.0,8.99890136718750066613e-01,1.53846153846153854694e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,6750,1687.5,0.899945068359375,1.42857142857142849212e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,7000,1750.0,8.99972534179687477795e-01,1.33333333333333331482e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,7250,1812.5,8.9998626708984375e-01,0.125,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,7500,1875.0,8.99993133544921941613e-01,1.17647058823529410132e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,7750,1937.5,0.899996566772461,1.11111111111111104943e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(23,8000,2000.0,8.99998283386230446545e-01,1.05263157894736836261e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(25,600,20.0,9.47999587740763871579e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(25,1200,40.0,9.47999587740763871579e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(25,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(25,2400,80.0,9.47999587740763871579e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(25,3000,100.0,9.47999587740763871579e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(26,600,14.0,9.51441315817280530708e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(26,1200,28.0,9.51441315817280530708e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(26,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(26,2400,56.0,9.51441315817280530708e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(26,3000,70.0,9.51441315817280530708e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(27,600,11.0,9.50658436999705092063e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(27,1200,22.0,9.50658436999705092063e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(27,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(27,2400,44.0,9.50658436999705092063e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(27,3000,55.0,9.50658436999705092063e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(28,600,20.0,9.47999587740763871579e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(28,1200,40.0,9.47999587740763871579e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(28,1800,60.0,9.47999587740763871579e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(28,2400,80.0,9.47999587740763871579e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(28,3000,100.0,9.47999587740763871579e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(29,600,14.0,9.51441315817280530708e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(29,1200,28.0,9.51441315817280530708e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(29,1800,42.0,9.51441315817280530708e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(29,2400,56.0,9.51441315817280530708e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(29,3000,70.0,9.51441315817280530708e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(30,600,11.0,9.50658436999705092063e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(30,1200,22.0,9.50658436999705092063e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(30,1800,33.0,9.50658436999705092063e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(30,2400,44.0,9.50658436999705092063e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(30,3000,55.0,9.50658436999705092063e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(33,600,9.5,0.948906614429139,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(33,1200,19.0,0.948906614429139,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(33,1800,28.5,0.948906614429139,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(33,2400,38.0,0.948906614429139,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(33,3000,47.5,0.948906614429139,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(34,600,9.5,9.52094428426020322753e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(34,1200,19.0,9.52094428426020322753e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(34,1800,28.5,9.52094428426020322753e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(34,2400,38.0,9.52094428426020322753e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(34,3000,47.5,9.52094428426020322753e-01,0.2,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(35,600,9.5,9.49596463309379079653e-01,1.0,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(35,1200,19.0,9.49596463309379079653e-01,0.5,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(35,1800,28.5,9.49596463309379079653e-01,3.33333333333333314829e-01,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(35,2400,38.0,9.49596463309379079653e-01,0.25,NULL);
INSERT INTO "syncswitch_evaluations" VALUES(35,3000,47.5,9.49596463309379079653e-01,0.2,NULL);
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
INSERT INTO "syncswitch_events" VALUES(28,0,'detected',400,6.25,'worker 1: 2.1 worker-steps/s, median 9.8',1,NULL);
INSERT INTO "syncswitch_events" VALUES(28,1,'removed',400,6.25,'elastic: 3 of 4 workers go on',1,0.125);
INSERT INTO "syncswitch_events" VALUES(28,2,'rebuilt',1800,40.5,'server killed; from the checkpoint of worker-step 1500',NULL,NULL);
INSERT INTO "syncswitch_events" VALUES(29,0,'detected',400,6.25,'worker 1: 2.1 worker-steps/s, median 9.8',1,NULL);
INSERT INTO "syncswitch_events" VALUES(29,1,'removed',400,6.25,'elastic: 3 of 4 workers go on',1,0.125);
INSERT INTO "syncswitch_events" VALUES(29,2,'rebuilt',1800,40.5,'server killed; from the checkpoint of worker-step 1500',NULL,NULL);
INSERT INTO "syncswitch_events" VALUES(30,0,'detected',400,6.25,'worker 1: 2.1 worker-steps/s, median 9.8',1,NULL);
INSERT INTO "syncswitch_events" VALUES(30,1,'removed',400,6.25,'elastic: 3 of 4 workers go on',1,0.125);
INSERT INTO "syncswitch_events" VALUES(30,2,'rebuilt',1800,40.5,'server killed; from the checkpoint of worker-step 1500',NULL,NULL);
CREATE TABLE syncswitch_failed_switches (
	trial_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	switch_percent DOUBLE NOT NULL, 
	alarm TEXT NOT NULL, 
	worker_step BIGINT NOT NULL, 
	elapsed_seconds DOUBLE NOT NULL, 
	lost_seconds DOUBLE NOT NULL, 
	accuracy DOUBLE, 
	second_protocol VARCHAR(64), 
	CONSTRAINT pk_syncswitch_failed_switches PRIMARY KEY (trial_id, position), 
	CONSTRAINT ck_syncswitch_failed_switches_position CHECK (position >= 0), 
	CONSTRAINT ck_syncswitch_failed_switches_worker_step CHECK (worker_step >= 0), 
	CONSTRAINT ck_syncswitch_failed_switches_elapsed_seconds CHECK (elapsed_seconds >= 0), 
	CONSTRAINT ck_syncswitch_failed_switches_lost_seconds CHECK (lost_seconds >= 0), 
	CONSTRAINT ck_syncswitch_failed_switches_switch_percent CHECK (switch_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_failed_switches_accuracy CHECK (accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT fk_syncswitch_failed_switches_trial_id FOREIGN KEY(trial_id) REFERENCES syncswitch_trials (trial_id)
);
INSERT INTO "syncswitch_failed_switches" VALUES(35,0,25.0,'three tests in a row below the first protocol''s',800,20.0,12.5,NULL,'asp');
CREATE TABLE syncswitch_phases (
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
	CONSTRAINT ck_syncswitch_phases_start_worker_step CHECK (start_worker_step >= 0), 
	CONSTRAINT ck_syncswitch_phases_seconds CHECK (seconds >= 0), 
	CONSTRAINT ck_syncswitch_phases_mean_staleness CHECK (mean_staleness >= 0), 
	CONSTRAINT ck_syncswitch_phases_max_staleness CHECK (max_staleness >= 0), 
	CONSTRAINT ck_syncswitch_phases_end_worker_step CHECK (end_worker_step >= start_worker_step), 
	CONSTRAINT fk_syncswitch_phases_trial_id FOREIGN KEY(trial_id) REFERENCES syncswitch_trials (trial_id)
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
INSERT INTO "syncswitch_phases" VALUES(17,0,'bsp',0,1000,6.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(18,0,'bsp',0,500,2.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(18,1,'asp',500,1000,1.0,2.5,7);
INSERT INTO "syncswitch_phases" VALUES(22,0,'bsp',0,4000,1000.0,NULL,NULL);
INSERT INTO "syncswitch_phases" VALUES(22,1,'asp',4000,8000,1000.0,NULL,NULL);
INSERT INTO "syncswitch_phases" VALUES(23,0,'bsp',0,4000,1000.0,NULL,NULL);
INSERT INTO "syncswitch_phases" VALUES(23,1,'asp',4000,8000,1000.0,NULL,NULL);
INSERT INTO "syncswitch_phases" VALUES(25,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(26,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(26,1,'asp',1500,3000,20.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(27,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(27,1,'asp',750,3000,30.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(28,0,'bsp',0,3000,100.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(29,0,'bsp',0,1500,50.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(29,1,'asp',1500,3000,20.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(30,0,'bsp',0,750,25.0,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(30,1,'asp',750,3000,30.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(33,0,'bsp',0,375,12.5,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(33,1,'asp',375,3000,35.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(34,0,'bsp',0,375,12.5,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(34,1,'asp',375,3000,35.0,3.0,9);
INSERT INTO "syncswitch_phases" VALUES(35,0,'bsp',0,375,12.5,0.0,0);
INSERT INTO "syncswitch_phases" VALUES(35,1,'asp',375,3000,35.0,3.0,9);
CREATE TABLE syncswitch_policies (
	fingerprint VARCHAR(64) NOT NULL, 
	workload VARCHAR(255) NOT NULL, 
	workers INTEGER NOT NULL, 
	total_worker_steps BIGINT NOT NULL, 
	metric VARCHAR(255) NOT NULL, 
	metric_goal VARCHAR(8) NOT NULL, 
	metric_unit VARCHAR(64), 
	metric_lowest DOUBLE, 
	metric_highest DOUBLE, 
	first_protocol VARCHAR(64) NOT NULL, 
	second_protocol VARCHAR(64) NOT NULL, 
	momentum_after_switch VARCHAR(64), 
	version INTEGER NOT NULL, 
	switch_percent DOUBLE NOT NULL, 
	target_accuracy DOUBLE, 
	threshold DOUBLE NOT NULL, 
	threshold_runs INTEGER NOT NULL, 
	mean_accuracy DOUBLE, 
	training_seconds DOUBLE, 
	baseline_seconds DOUBLE, 
	speed_up_low DOUBLE, 
	speed_up_high DOUBLE, 
	strategy VARCHAR(64) NOT NULL, 
	study VARCHAR(512) NOT NULL, 
	created_at DATETIME NOT NULL, 
	confidence DOUBLE, 
	kept_share DOUBLE, 
	delivered_share DOUBLE, 
	baseline_kept_share DOUBLE, 
	expected_time DOUBLE, 
	reason VARCHAR(255), 
	software JSON NOT NULL, 
	guarded BOOLEAN NOT NULL, 
	min_kept_share DOUBLE, 
	band JSON, 
	imported_at DATETIME, 
	CONSTRAINT pk_syncswitch_policies PRIMARY KEY (fingerprint, version), 
	CONSTRAINT uq_syncswitch_policies_fingerprint_study_created_at UNIQUE (fingerprint, study, created_at), 
	CONSTRAINT ck_syncswitch_policies_version CHECK (version > 0), 
	CONSTRAINT ck_syncswitch_policies_workers CHECK (workers > 0), 
	CONSTRAINT ck_syncswitch_policies_total_worker_steps CHECK (total_worker_steps > 0), 
	CONSTRAINT ck_syncswitch_policies_switch_percent CHECK (switch_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_policies_threshold CHECK (threshold >= 0), 
	CONSTRAINT ck_syncswitch_policies_training_seconds CHECK (training_seconds >= 0), 
	CONSTRAINT ck_syncswitch_policies_baseline_seconds CHECK (baseline_seconds >= 0), 
	CONSTRAINT ck_syncswitch_policies_expected_time CHECK (expected_time >= 0), 
	CONSTRAINT ck_syncswitch_policies_speed_up_low CHECK (speed_up_low >= 0), 
	CONSTRAINT ck_syncswitch_policies_speed_up_high CHECK (speed_up_high >= 0), 
	CONSTRAINT ck_syncswitch_policies_confidence CHECK (confidence BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_min_kept_share CHECK (min_kept_share BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_kept_share CHECK (kept_share BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_delivered_share CHECK (delivered_share BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_baseline_kept_share CHECK (baseline_kept_share BETWEEN 0 AND 1), 
	CONSTRAINT ck_syncswitch_policies_target_accuracy CHECK (target_accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT ck_syncswitch_policies_mean_accuracy CHECK (mean_accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT ck_syncswitch_policies_metric_goal CHECK (metric_goal IN ('max', 'min')), 
	CONSTRAINT fk_syncswitch_policies_fingerprint FOREIGN KEY(fingerprint) REFERENCES syncswitch_workloads (fingerprint)
);
INSERT INTO "syncswitch_policies" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','generated',4,3000,'accuracy','max',NULL,0.0,1.0,'bsp','asp','same',1,12.5,9.48963123956159337879e-01,0.01,0,9.48467949555901301827e-01,47.5,100.0,2.10526315789473672523e+00,2.10526315789473672523e+00,'paper','generated-45c7b69715af-7df6e790','2026-11-29 11:58:43.477920',NULL,NULL,NULL,NULL,NULL,NULL,'{"python": "3.11.7", "syncswitch": "0.2.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',0,NULL,'{"target_accuracy": 0.9489631239561593, "threshold": 0.01, "runs": 2, "curve": [{"worker_step": 600, "accuracy": 0.9489631239561593, "deviation": 0.0013626459836499122}, {"worker_step": 1200, "accuracy": 0.9489631239561593, "deviation": 0.0013626459836499122}, {"worker_step": 1800, "accuracy": 0.9489631239561593, "deviation": 0.0013626459836499122}, {"worker_step": 2400, "accuracy": 0.9489631239561593, "deviation": 0.0013626459836499122}, {"worker_step": 3000, "accuracy": 0.9489631239561593, "deviation": 0.0013626459836499122}]}',NULL);
INSERT INTO "syncswitch_policies" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','generated',4,3000,'accuracy','max',NULL,0.0,1.0,'bsp','asp','same',2,12.5,9.47999587740763871579e-01,0.01,0,9.48897656799944422267e-01,47.5,100.0,2.10526315789473672523e+00,2.10526315789473672523e+00,'paper','generated-45c7b69715af-af85acb3','2026-11-29 11:58:46.400608',NULL,NULL,NULL,NULL,NULL,NULL,'{"python": "3.11.7", "syncswitch": "0.2.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',0,NULL,'{"target_accuracy": 0.9479995877407639, "threshold": 0.01, "runs": 1, "curve": [{"worker_step": 600, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 1200, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 1800, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 2400, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 3000, "accuracy": 0.9479995877407639, "deviation": 0.0}]}',NULL);
INSERT INTO "syncswitch_policies" VALUES('7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a','generated',4,3000,'accuracy','max',NULL,0.0,1.0,'bsp','asp','same',1,25.0,9.47999587740763871579e-01,0.01,0,9.50658436999705092063e-01,55.0,100.0,1.81818181818181812126e+00,1.81818181818181812126e+00,'paper','generated-7d04573e59a1-5dd918f8','2026-11-29 11:58:50.171739',NULL,NULL,NULL,NULL,NULL,NULL,'{"python": "3.11.7", "syncswitch": "0.2.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',0,NULL,'{"target_accuracy": 0.9479995877407639, "threshold": 0.01, "runs": 1, "curve": [{"worker_step": 600, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 1200, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 1800, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 2400, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 3000, "accuracy": 0.9479995877407639, "deviation": 0.0}]}',NULL);
INSERT INTO "syncswitch_policies" VALUES('99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1','disturbed',4,3000,'regret','min','EUR',NULL,NULL,'bsp','asp','same',1,25.0,9.47999587740763871579e-01,0.01,0,9.50658436999705092063e-01,55.0,100.0,1.81818181818181812126e+00,1.81818181818181812126e+00,'paper','disturbed-99d656530382-9ea9f3a7','2026-11-29 11:58:51.409624',NULL,NULL,NULL,NULL,NULL,NULL,'{"python": "3.11.7", "syncswitch": "0.2.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "optuna": "5.0.0"}',0,NULL,'{"target_accuracy": 0.9479995877407639, "threshold": 0.01, "runs": 1, "curve": [{"worker_step": 600, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 1200, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 1800, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 2400, "accuracy": 0.9479995877407639, "deviation": 0.0}, {"worker_step": 3000, "accuracy": 0.9479995877407639, "deviation": 0.0}]}',NULL);
CREATE TABLE syncswitch_policy_aliases (
	fingerprint VARCHAR(64) NOT NULL, 
	alias VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	CONSTRAINT pk_syncswitch_policy_aliases PRIMARY KEY (fingerprint, alias), 
	CONSTRAINT fk_syncswitch_policy_aliases_fingerprint FOREIGN KEY(fingerprint, version) REFERENCES syncswitch_policies (fingerprint, version)
);
INSERT INTO "syncswitch_policy_aliases" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','current',2);
INSERT INTO "syncswitch_policy_aliases" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','pinned',1);
INSERT INTO "syncswitch_policy_aliases" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','tried',2);
INSERT INTO "syncswitch_policy_aliases" VALUES('7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a','current',1);
INSERT INTO "syncswitch_policy_aliases" VALUES('99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1','current',1);
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
	CONSTRAINT fk_syncswitch_policy_evidence_fingerprint FOREIGN KEY(fingerprint, version) REFERENCES syncswitch_policies (fingerprint, version), 
	CONSTRAINT uq_syncswitch_policy_evidence_trial UNIQUE (fingerprint, version, study, trial_number), 
	CONSTRAINT ck_syncswitch_policy_evidence_switch_percent CHECK (switch_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_policy_evidence_training_seconds CHECK (training_seconds >= 0), 
	CONSTRAINT ck_syncswitch_policy_evidence_converged_accuracy CHECK (converged_accuracy BETWEEN -1e300 AND 1e300)
);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,0,'generated-45c7b69715af-7df6e790',1,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,1,'generated-45c7b69715af-7df6e790',2,100.0,1,9.49926660171554804179e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,2,'generated-45c7b69715af-7df6e790',3,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,3,'generated-45c7b69715af-7df6e790',4,50.0,1,9.50177088112744594461e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,4,'generated-45c7b69715af-7df6e790',5,25.0,0,9.50658436999705092063e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,5,'generated-45c7b69715af-7df6e790',6,25.0,1,9.50259149821477633324e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,6,'generated-45c7b69715af-7df6e790',7,12.5,0,9.48897656799944422267e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',1,7,'generated-45c7b69715af-7df6e790',8,12.5,1,9.48038242311858181388e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',2,0,'generated-45c7b69715af-af85acb3',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',2,1,'generated-45c7b69715af-af85acb3',1,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',2,2,'generated-45c7b69715af-af85acb3',2,25.0,0,9.50658436999705092063e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',2,3,'generated-45c7b69715af-af85acb3',3,12.5,0,9.48897656799944422267e-01,0,47.5);
INSERT INTO "syncswitch_policy_evidence" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376',2,4,'generated-45c7b69715af-af85acb3',4,6.25,0,8.50280379073752312635e-01,0,43.76);
INSERT INTO "syncswitch_policy_evidence" VALUES('7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a',1,0,'generated-7d04573e59a1-5dd918f8',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a',1,1,'generated-7d04573e59a1-5dd918f8',1,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a',1,2,'generated-7d04573e59a1-5dd918f8',2,25.0,0,9.50658436999705092063e-01,0,55.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1',1,0,'disturbed-99d656530382-9ea9f3a7',0,100.0,0,9.47999587740763871579e-01,0,100.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1',1,1,'disturbed-99d656530382-9ea9f3a7',1,50.0,0,9.51441315817280530708e-01,0,70.0);
INSERT INTO "syncswitch_policy_evidence" VALUES('99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1',1,2,'disturbed-99d656530382-9ea9f3a7',2,25.0,0,9.50658436999705092063e-01,0,55.0);
CREATE TABLE syncswitch_searches (
	study VARCHAR(512) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	first_protocol VARCHAR(64) NOT NULL, 
	second_protocol VARCHAR(64) NOT NULL, 
	momentum_after_switch VARCHAR(64), 
	strategy VARCHAR(64) NOT NULL, 
	halvings INTEGER NOT NULL, 
	runs INTEGER NOT NULL, 
	threshold DOUBLE NOT NULL, 
	target_accuracy DOUBLE, 
	trainer VARCHAR(64) NOT NULL, 
	base_seed BIGINT NOT NULL, 
	options JSON NOT NULL, 
	pairs JSON NOT NULL, 
	dropped JSON NOT NULL, 
	registered_at DATETIME NOT NULL, 
	CONSTRAINT pk_syncswitch_searches PRIMARY KEY (study), 
	CONSTRAINT uq_syncswitch_searches_study_fingerprint UNIQUE (study, fingerprint), 
	CONSTRAINT ck_syncswitch_searches_halvings CHECK (halvings > 0), 
	CONSTRAINT ck_syncswitch_searches_runs CHECK (runs > 0), 
	CONSTRAINT ck_syncswitch_searches_threshold CHECK (threshold >= 0), 
	CONSTRAINT ck_syncswitch_searches_target_accuracy CHECK (target_accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT fk_syncswitch_searches_fingerprint FOREIGN KEY(fingerprint) REFERENCES syncswitch_workloads (fingerprint)
);
INSERT INTO "syncswitch_searches" VALUES('generated-45c7b69715af-7df6e790','45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','paper',3,2,0.01,NULL,'local',0,'{"share_prefix": false, "early_stop": false, "accuracy_range": [0.0, 1.0], "threshold_runs": 0, "baseline_runs": null}','[]','{}','2026-11-29 11:58:33.879353');
INSERT INTO "syncswitch_searches" VALUES('generated-45c7b69715af-af85acb3','45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','paper',4,1,0.01,NULL,'local',0,'{"share_prefix": false, "early_stop": false, "accuracy_range": [0.0, 1.0], "threshold_runs": 0, "baseline_runs": null}','[]','{}','2026-11-29 11:58:43.746328');
INSERT INTO "syncswitch_searches" VALUES('under-way','484e1cfd7883479b57661b91cfbec9939a3561e38f723b79368ba1239dcd8198','bsp','asp','same','paper',3,2,0.01,0.9,'local',1,'{}','[]','{}','2026-11-29 11:58:46.509158');
INSERT INTO "syncswitch_searches" VALUES('digits-1','ae43a8c11ac85a69b31132bd0eb3033818c11dc18c3e53e73175cc48e591c526','bsp','asp','same','adaptive',5,3,0.01,NULL,'simulated',7,'{}','[]','{}','2026-11-29 11:58:46.576160');
INSERT INTO "syncswitch_searches" VALUES('generated-7d04573e59a1-5dd918f8','7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a','bsp','asp','same','paper',2,1,0.01,NULL,'simulated',0,'{"share_prefix": false, "early_stop": false, "accuracy_range": [0.0, 1.0], "threshold_runs": 0, "baseline_runs": null}','[]','{}','2026-11-29 11:58:49.331203');
INSERT INTO "syncswitch_searches" VALUES('disturbed-99d656530382-9ea9f3a7','99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1','bsp','asp','same','paper',2,1,0.01,NULL,'local',0,'{"share_prefix": false, "early_stop": false, "accuracy_range": [0.0, 1.0], "threshold_runs": 0, "baseline_runs": null}','[]','{}','2026-11-29 11:58:50.236108');
CREATE TABLE syncswitch_trials (
	trial_id INTEGER NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	first_protocol VARCHAR(64) NOT NULL, 
	second_protocol VARCHAR(64) NOT NULL, 
	momentum_after_switch VARCHAR(64), 
	study VARCHAR(512), 
	trial_number INTEGER, 
	source VARCHAR(1024), 
	use_id VARCHAR(64), 
	policy_version INTEGER, 
	candidate_percent DOUBLE, 
	switch_percent DOUBLE NOT NULL, 
	replicate INTEGER NOT NULL, 
	seed BIGINT, 
	fork_from TEXT, 
	parent_trial_id INTEGER, 
	fork_percent DOUBLE, 
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
	target_accuracy DOUBLE, 
	time_to_accuracy_seconds DOUBLE, 
	software JSON, 
	online VARCHAR(16) DEFAULT 'none' NOT NULL, 
	switch_mechanism VARCHAR(16) DEFAULT 'hot' NOT NULL, 
	injections TEXT, 
	speculative BOOLEAN DEFAULT 0 NOT NULL, 
	converged_evaluations INTEGER, 
	plateau_accuracy DOUBLE, 
	guard VARCHAR(16), 
	held_percent DOUBLE, 
	step_seconds JSON, 
	CONSTRAINT pk_syncswitch_trials PRIMARY KEY (trial_id), 
	CONSTRAINT uq_syncswitch_trials_study_trial_number UNIQUE (study, trial_number), 
	CONSTRAINT uq_syncswitch_trials_source UNIQUE (source), 
	CONSTRAINT fk_syncswitch_trials_study FOREIGN KEY(study, fingerprint) REFERENCES syncswitch_searches (study, fingerprint), 
	CONSTRAINT fk_syncswitch_trials_policy FOREIGN KEY(fingerprint, policy_version) REFERENCES syncswitch_policies (fingerprint, version), 
	CONSTRAINT ck_syncswitch_trials_state CHECK (state IN ('running', 'complete', 'failed')), 
	CONSTRAINT ck_syncswitch_trials_numbered_in_search CHECK ((study IS NULL) = (trial_number IS NULL)), 
	CONSTRAINT ck_syncswitch_trials_searched_imported_or_used CHECK ((study IS NOT NULL AND source IS NULL AND use_id IS NULL) OR (study IS NULL AND (source IS NULL) <> (use_id IS NULL))), 
	CONSTRAINT ck_syncswitch_trials_used_a_policy CHECK ((use_id IS NULL) = (policy_version IS NULL)), 
	CONSTRAINT ck_syncswitch_trials_guard CHECK (guard IN ('off', 'quiet', 'alarmed')), 
	CONSTRAINT ck_syncswitch_trials_held_percent CHECK (held_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_trials_switch_percent CHECK (switch_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_trials_candidate_percent CHECK (candidate_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_trials_fork_percent CHECK (fork_percent BETWEEN 0 AND 100), 
	CONSTRAINT ck_syncswitch_trials_trial_number CHECK (trial_number >= 0), 
	CONSTRAINT ck_syncswitch_trials_replicate CHECK (replicate >= 0), 
	CONSTRAINT ck_syncswitch_trials_worker_steps CHECK (worker_steps >= 0), 
	CONSTRAINT ck_syncswitch_trials_training_seconds CHECK (training_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_inherited_seconds CHECK (inherited_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_switch_overhead_seconds CHECK (switch_overhead_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_time_to_accuracy_seconds CHECK (time_to_accuracy_seconds >= 0), 
	CONSTRAINT ck_syncswitch_trials_converged_accuracy CHECK (converged_accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT ck_syncswitch_trials_final_accuracy CHECK (final_accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT ck_syncswitch_trials_plateau_accuracy CHECK (plateau_accuracy BETWEEN -1e300 AND 1e300), 
	CONSTRAINT ck_syncswitch_trials_fork CHECK ((parent_trial_id IS NULL) = (fork_percent IS NULL)), 
	CONSTRAINT ck_syncswitch_trials_no_fork_of_itself CHECK (parent_trial_id <> trial_id), 
	CONSTRAINT ck_syncswitch_trials_time_to_a_target CHECK (time_to_accuracy_seconds IS NULL OR target_accuracy IS NOT NULL), 
	CONSTRAINT ck_syncswitch_trials_running_has_owner CHECK (state <> 'running' OR (started_at IS NOT NULL AND heartbeat_at IS NOT NULL AND host IS NOT NULL AND process_id IS NOT NULL AND process_started_at IS NOT NULL)), 
	CONSTRAINT ck_syncswitch_trials_failed_has_reason CHECK (state <> 'failed' OR failure IS NOT NULL), 
	CONSTRAINT ck_syncswitch_trials_complete_is_measured CHECK (state <> 'complete' OR (converged_accuracy IS NOT NULL AND final_accuracy IS NOT NULL AND converged IS NOT NULL AND diverged IS NOT NULL AND stopped_early IS NOT NULL AND training_seconds IS NOT NULL AND inherited_seconds IS NOT NULL AND switch_overhead_seconds IS NOT NULL AND ended_at IS NOT NULL) OR (source IS NOT NULL AND diverged IS NOT NULL AND diverged)), 
	CONSTRAINT fk_syncswitch_trials_fingerprint FOREIGN KEY(fingerprint) REFERENCES syncswitch_workloads (fingerprint), 
	CONSTRAINT fk_syncswitch_trials_parent_trial_id FOREIGN KEY(parent_trial_id) REFERENCES syncswitch_trials (trial_id)
);
INSERT INTO "syncswitch_trials" VALUES(1,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',0,NULL,NULL,NULL,100.0,100.0,0,1875953128,NULL,NULL,NULL,'failed',0,'2026-11-29 11:58:35.402829','2026-11-29 11:58:35.470252','2026-11-29 11:58:35.402829','golden',4321,1700000000.25,'the generated server was lost',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none','hot',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(2,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',1,NULL,NULL,NULL,100.0,100.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:37.948137','2026-11-29 11:58:37.960717','2026-11-29 11:58:37.903515','generated',7333,1795953502.52,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,9.48963123956159337879e-01,NULL,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',100.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(3,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',2,NULL,NULL,NULL,100.0,100.0,1,970604138,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:38.844206','2026-11-29 11:58:38.856839','2026-11-29 11:58:38.706607','generated',7333,1795953502.52,NULL,9.49926660171554804179e-01,9.49926660171554804179e-01,1,0,0,100.0,0.0,0.01,9.48963123956159337879e-01,20.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',100.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(4,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',3,NULL,NULL,NULL,50.0,50.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:39.816906','2026-11-29 11:58:39.818780','2026-11-29 11:58:39.787827','generated',7333,1795953502.52,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,9.48963123956159337879e-01,14.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',50.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(5,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',4,NULL,NULL,NULL,50.0,50.0,1,970604138,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:40.335718','2026-11-29 11:58:40.340496','2026-11-29 11:58:40.299677','generated',7333,1795953502.52,NULL,9.50177088112744594461e-01,9.50177088112744594461e-01,1,0,0,70.0,0.0,0.01,9.48963123956159337879e-01,14.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',50.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(6,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',5,NULL,NULL,NULL,25.0,25.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:40.836213','2026-11-29 11:58:40.840938','2026-11-29 11:58:40.816042','generated',7333,1795953502.52,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,9.48963123956159337879e-01,11.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',25.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(7,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',6,NULL,NULL,NULL,25.0,25.0,1,970604138,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:41.159453','2026-11-29 11:58:41.168766','2026-11-29 11:58:41.126368','generated',7333,1795953502.52,NULL,9.50259149821477633324e-01,9.50259149821477633324e-01,1,0,0,55.0,0.0,0.01,9.48963123956159337879e-01,11.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',25.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(8,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',7,NULL,NULL,NULL,12.5,12.5,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:41.445379','2026-11-29 11:58:41.448728','2026-11-29 11:58:41.420228','generated',7333,1795953502.52,NULL,9.48897656799944422267e-01,9.48897656799944422267e-01,1,0,0,47.5,0.0,0.01,9.48963123956159337879e-01,NULL,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',12.5,NULL);
INSERT INTO "syncswitch_trials" VALUES(9,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-7df6e790',8,NULL,NULL,NULL,12.5,12.5,1,970604138,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:41.687625','2026-11-29 11:58:41.697001','2026-11-29 11:58:41.670064','generated',7333,1795953502.52,NULL,9.48038242311858181388e-01,9.48038242311858181388e-01,1,0,0,47.5,0.0,0.01,9.48963123956159337879e-01,NULL,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',12.5,NULL);
INSERT INTO "syncswitch_trials" VALUES(10,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-af85acb3',0,NULL,NULL,NULL,100.0,100.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:44.391974','2026-11-29 11:58:44.408595','2026-11-29 11:58:44.247858','generated',7333,1795953502.52,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,9.47999587740763871579e-01,20.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',100.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(11,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-af85acb3',1,NULL,NULL,NULL,50.0,50.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:45.090814','2026-11-29 11:58:45.100634','2026-11-29 11:58:45.030402','generated',7333,1795953502.52,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,9.47999587740763871579e-01,14.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',50.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(12,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-af85acb3',2,NULL,NULL,NULL,25.0,25.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:45.621114','2026-11-29 11:58:45.624806','2026-11-29 11:58:45.567969','generated',7333,1795953502.52,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,9.47999587740763871579e-01,11.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',25.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(13,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-af85acb3',3,NULL,NULL,NULL,12.5,12.5,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:45.930803','2026-11-29 11:58:45.944629','2026-11-29 11:58:45.909963','generated',7333,1795953502.52,NULL,9.48897656799944422267e-01,9.48897656799944422267e-01,1,0,0,47.5,0.0,0.01,9.47999587740763871579e-01,9.5,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',12.5,NULL);
INSERT INTO "syncswitch_trials" VALUES(14,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same','generated-45c7b69715af-af85acb3',4,NULL,NULL,NULL,6.25,6.25,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:46.240850','2026-11-29 11:58:46.241313','2026-11-29 11:58:46.206297','generated',7333,1795953502.52,NULL,8.50280379073752312635e-01,8.50280379073752312635e-01,1,0,0,43.76,0.0,0.01,9.47999587740763871579e-01,NULL,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',6.25,NULL);
INSERT INTO "syncswitch_trials" VALUES(15,'484e1cfd7883479b57661b91cfbec9939a3561e38f723b79368ba1239dcd8198','bsp','asp','same','under-way',0,NULL,NULL,NULL,100.0,100.0,0,7,NULL,NULL,NULL,'failed',0,'2026-11-29 11:58:46.518305','2026-11-29 11:58:46.524541','2026-11-29 11:58:46.518305','golden',4321,1700000000.25,'the machine went away',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none','hot',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(16,'484e1cfd7883479b57661b91cfbec9939a3561e38f723b79368ba1239dcd8198','bsp','asp','same','under-way',1,NULL,NULL,NULL,100.0,100.0,0,7,'start.npz',NULL,NULL,'running',1234,'2026-11-29 11:58:46.530173',NULL,'2026-11-29 11:58:46.544614','golden',4321,1700000000.25,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none','hot',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(17,'ae43a8c11ac85a69b31132bd0eb3033818c11dc18c3e53e73175cc48e591c526','bsp','asp','same','digits-1',0,NULL,NULL,NULL,100.0,100.0,2,11,NULL,NULL,NULL,'complete',1000,'2026-01-31 12:00:00.000000','2026-01-31 12:00:09.000000','2026-11-29 11:58:46.619343','chief',4321,1700000000.25,NULL,0.89,0.9,1,0,1,6.0,0.0,0.25,0.9,2.5,'{"tensorflow": "2.16.1"}','none','hot',NULL,0,3,0.89,'off',100.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(18,'ae43a8c11ac85a69b31132bd0eb3033818c11dc18c3e53e73175cc48e591c526','bsp','asp','same','digits-1',1,NULL,NULL,NULL,50.0,50.0,2,11,NULL,17,50.0,'complete',1000,'2026-01-31 12:00:00.000000','2026-01-31 12:00:09.000000','2026-11-29 11:58:46.655387','chief',4321,1700000000.25,NULL,0.89,0.9,1,0,1,3.0,1.0,0.25,0.9,2.5,'{"tensorflow": "2.16.1"}','none','hot',NULL,0,2,0.89,'off',50.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(19,'ae43a8c11ac85a69b31132bd0eb3033818c11dc18c3e53e73175cc48e591c526','bsp','asp','same','digits-1',2,NULL,NULL,NULL,50.0,50.0,2,11,NULL,NULL,NULL,'complete',1000,'2026-01-31 12:01:00.000000','2026-01-31 12:01:09.000000','2026-11-29 11:58:46.682878','chief',4321,1700000000.25,NULL,0.89,0.0,0,1,1,3.0,1.0,0.25,0.9,NULL,'{"tensorflow": "2.16.1"}','none','hot',NULL,0,0,NULL,'off',50.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(20,'ae43a8c11ac85a69b31132bd0eb3033818c11dc18c3e53e73175cc48e591c526','bsp','asp','same','digits-1',3,NULL,NULL,NULL,50.0,50.0,2,11,NULL,NULL,NULL,'failed',0,'2026-11-29 11:58:46.743334','2026-11-29 11:58:46.756667','2026-11-29 11:58:46.743334','host-1',4321,1700000000.25,'lost: "the server",
as it says',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none','hot',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(21,'ae43a8c11ac85a69b31132bd0eb3033818c11dc18c3e53e73175cc48e591c526','bsp','asp','same','digits-1',4,NULL,NULL,NULL,50.0,50.0,2,11,NULL,NULL,NULL,'running',250,'2026-11-29 11:58:46.767146',NULL,'2026-11-29 11:58:46.776604','host-1',4321,1700000000.25,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none','hot',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(22,'35a3adba56e5fc77c582d4a9d2ad65ab993ceb0c9c5d3c32b94ed1d4e918586d','bsp','asp',NULL,NULL,NULL,'recorded/b50-1',NULL,NULL,37.5,50.0,1,NULL,NULL,NULL,NULL,'complete',8000,'2026-11-29 11:58:49.258194','2026-11-29 12:32:09.258194',NULL,NULL,NULL,NULL,NULL,8.99998283386230446545e-01,8.99998283386230446545e-01,1,0,0,2000.0,0.0,100.0,NULL,NULL,NULL,'none','hot',NULL,0,1,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(23,'35a3adba56e5fc77c582d4a9d2ad65ab993ceb0c9c5d3c32b94ed1d4e918586d','bsp','asp',NULL,NULL,NULL,'recorded/b50-2',NULL,NULL,NULL,50.0,2,NULL,NULL,NULL,NULL,'complete',8000,'2026-11-29 11:58:49.258745','2026-11-29 12:32:09.258745',NULL,NULL,NULL,NULL,NULL,8.99998283386230446545e-01,8.99998283386230446545e-01,1,0,0,2000.0,0.0,100.0,NULL,NULL,NULL,'none','hot',NULL,0,1,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(24,'35a3adba56e5fc77c582d4a9d2ad65ab993ceb0c9c5d3c32b94ed1d4e918586d','bsp','asp',NULL,NULL,NULL,'recorded/b0',NULL,NULL,0.0,0.0,1,NULL,NULL,NULL,NULL,'complete',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none','hot',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(25,'7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a','bsp','asp','same','generated-7d04573e59a1-5dd918f8',0,NULL,NULL,NULL,100.0,100.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:49.578220','2026-11-29 11:58:49.580685','2026-11-29 11:58:49.554012','generated',7333,1795953502.52,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,9.47999587740763871579e-01,20.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',100.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(26,'7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a','bsp','asp','same','generated-7d04573e59a1-5dd918f8',1,NULL,NULL,NULL,50.0,50.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:49.822151','2026-11-29 11:58:49.828801','2026-11-29 11:58:49.795214','generated',7333,1795953502.52,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,9.47999587740763871579e-01,14.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',50.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(27,'7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a','bsp','asp','same','generated-7d04573e59a1-5dd918f8',2,NULL,NULL,NULL,25.0,25.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:50.074073','2026-11-29 11:58:50.076652','2026-11-29 11:58:50.059932','generated',7333,1795953502.52,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,9.47999587740763871579e-01,11.0,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',25.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(28,'99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1','bsp','asp','same','disturbed-99d656530382-9ea9f3a7',0,NULL,NULL,NULL,100.0,100.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:50.584510','2026-11-29 11:58:50.588615','2026-11-29 11:58:50.511494','generated',7333,1795953502.52,NULL,9.47999587740763871579e-01,9.47999587740763871579e-01,1,0,0,100.0,0.0,0.01,9.47999587740763871579e-01,20.0,'{"syncswitch": "0"}','elastic','restart','straggler:worker=1,at=10%,for=5s,delay=30ms; kill:ps,at=60%',0,5,NULL,'off',100.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(29,'99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1','bsp','asp','same','disturbed-99d656530382-9ea9f3a7',1,NULL,NULL,NULL,50.0,50.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:50.909559','2026-11-29 11:58:50.912741','2026-11-29 11:58:50.862099','generated',7333,1795953502.52,NULL,9.51441315817280530708e-01,9.51441315817280530708e-01,1,0,0,70.0,0.0,0.01,9.47999587740763871579e-01,14.0,'{"syncswitch": "0"}','elastic','restart','straggler:worker=1,at=10%,for=5s,delay=30ms; kill:ps,at=60%',0,5,NULL,'off',50.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(30,'99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1','bsp','asp','same','disturbed-99d656530382-9ea9f3a7',2,NULL,NULL,NULL,25.0,25.0,0,1875953128,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:51.267032','2026-11-29 11:58:51.267521','2026-11-29 11:58:51.226033','generated',7333,1795953502.52,NULL,9.50658436999705092063e-01,9.50658436999705092063e-01,1,0,0,55.0,0.0,0.01,9.47999587740763871579e-01,11.0,'{"syncswitch": "0"}','elastic','restart','straggler:worker=1,at=10%,for=5s,delay=30ms; kill:ps,at=60%',0,5,NULL,'off',25.0,NULL);
INSERT INTO "syncswitch_trials" VALUES(31,'484e1cfd7883479b57661b91cfbec9939a3561e38f723b79368ba1239dcd8198','bsp','asp','same','under-way',3,NULL,NULL,NULL,50.0,50.0,2,8,NULL,NULL,NULL,'failed',2400,'2026-11-29 11:58:51.554187','2026-11-29 11:58:51.554646','2026-11-29 11:58:51.536377','generated',4321,1700000000.25,'no longer needed: the search is decided',NULL,NULL,NULL,NULL,NULL,70.0,0.0,0.01,NULL,NULL,'{"syncswitch": "0"}','none','hot',NULL,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(32,'484e1cfd7883479b57661b91cfbec9939a3561e38f723b79368ba1239dcd8198','bsp','asp','same','under-way',4,NULL,NULL,NULL,50.0,50.0,2,8,NULL,NULL,NULL,'running',0,'2026-11-29 11:58:51.545219',NULL,'2026-11-29 11:58:51.545219','host-1',4321,1700000000.25,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none','hot',NULL,1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "syncswitch_trials" VALUES(33,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same',NULL,NULL,NULL,'use-0',1,NULL,12.5,0,0,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:51.590022','2026-11-29 11:58:51.590412',NULL,'generated',NULL,NULL,NULL,0.948906614429139,0.948906614429139,1,0,0,47.5,0.0,0.01,9.48963123956159337879e-01,NULL,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'off',12.5,NULL);
INSERT INTO "syncswitch_trials" VALUES(34,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same',NULL,NULL,NULL,'use-1',1,NULL,12.5,0,1,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:51.716589','2026-11-29 11:58:51.720716',NULL,'generated',NULL,NULL,NULL,9.52094428426020322753e-01,9.52094428426020322753e-01,1,0,0,47.5,0.0,0.01,9.48963123956159337879e-01,9.5,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'quiet',25.0,'{"bsp": 0.02, "asp": 0.01}');
INSERT INTO "syncswitch_trials" VALUES(35,'45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','bsp','asp','same',NULL,NULL,NULL,'use-2',1,NULL,12.5,0,2,NULL,NULL,NULL,'complete',3000,'2026-11-29 11:58:51.745825','2026-11-29 11:58:51.750165',NULL,'generated',NULL,NULL,NULL,9.49596463309379079653e-01,9.49596463309379079653e-01,1,0,0,47.5,0.0,0.01,9.48963123956159337879e-01,9.5,'{"syncswitch": "0"}','none','hot',NULL,0,5,NULL,'alarmed',50.0,'{"bsp": 0.02, "asp": 0.01}');
CREATE TABLE syncswitch_workloads (
	fingerprint VARCHAR(64) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	total_worker_steps BIGINT NOT NULL, 
	workers INTEGER NOT NULL, 
	model TEXT, 
	data_set TEXT, 
	loss TEXT, 
	optimizer TEXT, 
	batch_size INTEGER, 
	learning_rate DOUBLE, 
	momentum DOUBLE, 
	learning_rate_boundaries JSON, 
	evaluation_interval_worker_steps BIGINT, 
	metric TEXT, 
	metric_goal VARCHAR(8) NOT NULL, 
	metric_unit VARCHAR(64), 
	metric_lowest DOUBLE, 
	metric_highest DOUBLE, 
	simulated_cluster VARCHAR(64), 
	reference VARCHAR(1024) NOT NULL, 
	metric_name VARCHAR(255) NOT NULL, 
	registered_at DATETIME NOT NULL, 
	next_seed BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_syncswitch_workloads PRIMARY KEY (fingerprint), 
	CONSTRAINT ck_syncswitch_workloads_total_worker_steps CHECK (total_worker_steps > 0), 
	CONSTRAINT ck_syncswitch_workloads_batch_size CHECK (batch_size > 0), 
	CONSTRAINT ck_syncswitch_workloads_workers CHECK (workers > 0)
);
INSERT INTO "syncswitch_workloads" VALUES('45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376','generated',3000,4,'0000000000000000000000000000000000000000000000000000000000000000','none','none','{}',32,0.1,0.9,'[[1500, 0.1]]',50,'accuracy','max',NULL,0.0,1.0,NULL,'generated','accuracy','2026-11-29 11:58:33.869547',0);
INSERT INTO "syncswitch_workloads" VALUES('484e1cfd7883479b57661b91cfbec9939a3561e38f723b79368ba1239dcd8198','larger',3000,8,'0000000000000000000000000000000000000000000000000000000000000000','none','none','{}',32,0.1,0.9,'[[1500, 0.1]]',50,'accuracy','max',NULL,0.0,1.0,NULL,'job.py:larger','accuracy','2026-11-29 11:58:46.503059',0);
INSERT INTO "syncswitch_workloads" VALUES('ae43a8c11ac85a69b31132bd0eb3033818c11dc18c3e53e73175cc48e591c526','digits',1000,4,'a model','digits','crossentropy','{"name":"sgd"}',32,0.1,0.9,'[[500, 0.1]]',50,'accuracy','max',NULL,0.0,1.0,NULL,'digits','accuracy','2026-11-29 11:58:46.573244',0);
INSERT INTO "syncswitch_workloads" VALUES('35a3adba56e5fc77c582d4a9d2ad65ab993ceb0c9c5d3c32b94ed1d4e918586d','recorded',8000,8,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'max',NULL,0.0,1.0,NULL,'recorded','accuracy','2026-11-29 11:58:49.278295',0);
INSERT INTO "syncswitch_workloads" VALUES('7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a','generated',3000,4,'0000000000000000000000000000000000000000000000000000000000000000','none','none','{}',32,0.1,0.9,'[[1500, 0.1]]',50,'accuracy','max',NULL,0.0,1.0,'5555555555555555555555555555555555555555555555555555555555555555','generated','accuracy','2026-11-29 11:58:49.329725',0);
INSERT INTO "syncswitch_workloads" VALUES('99d656530382026eda7fd693447dd52eefb7e528167384630076a09b91ea51b1','disturbed',3000,4,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','none','none','{}',32,0.1,0.9,'[[1500, 0.1]]',50,'regret','min','EUR',NULL,NULL,NULL,'disturbed','regret','2026-11-29 11:58:50.234798',0);
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
INSERT INTO "trial_user_attributes" VALUES(1,1,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(2,1,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(4,1,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(5,2,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(6,2,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(7,2,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(8,2,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(9,2,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(10,2,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(11,3,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(12,3,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(13,3,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(14,3,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(15,3,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(16,3,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(17,4,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(18,4,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(19,4,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(20,4,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(21,4,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(22,4,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(23,5,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(24,5,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(25,5,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(26,5,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(27,5,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(28,5,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(29,6,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(30,6,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(31,6,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(32,6,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(33,6,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(34,6,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(35,7,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(36,7,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(37,7,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(38,7,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(39,7,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(40,7,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(41,8,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(42,8,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(43,8,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(44,8,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(45,8,'training_seconds','47.5');
INSERT INTO "trial_user_attributes" VALUES(46,8,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(47,9,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(48,9,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(49,9,'seed','970604138');
INSERT INTO "trial_user_attributes" VALUES(50,9,'replicate','1');
INSERT INTO "trial_user_attributes" VALUES(51,9,'training_seconds','47.5');
INSERT INTO "trial_user_attributes" VALUES(52,9,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(53,10,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(54,10,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(55,10,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(56,10,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(57,10,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(58,10,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(59,11,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(60,11,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(61,11,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(62,11,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(63,11,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(64,11,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(65,12,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(66,12,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(67,12,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(68,12,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(69,12,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(70,12,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(71,13,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(72,13,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(73,13,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(74,13,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(75,13,'training_seconds','47.5');
INSERT INTO "trial_user_attributes" VALUES(76,13,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(77,14,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(78,14,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(79,14,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(80,14,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(81,14,'training_seconds','43.76');
INSERT INTO "trial_user_attributes" VALUES(82,14,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(83,15,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(84,15,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(85,15,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(86,15,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(87,15,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(88,15,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(89,16,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(90,16,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(91,16,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(92,16,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(93,16,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(94,16,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(95,17,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(96,17,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(97,17,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(98,17,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(99,17,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(100,17,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(101,18,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(102,18,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(103,18,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(104,18,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(105,18,'training_seconds','100.0');
INSERT INTO "trial_user_attributes" VALUES(106,18,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(107,19,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(108,19,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(109,19,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(110,19,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(111,19,'training_seconds','70.0');
INSERT INTO "trial_user_attributes" VALUES(112,19,'diverged','false');
INSERT INTO "trial_user_attributes" VALUES(113,20,'owner','{"host": "vm", "process_id": 7333, "process_started_at": 1795953502.52}');
INSERT INTO "trial_user_attributes" VALUES(114,20,'protocols','"bsp,asp"');
INSERT INTO "trial_user_attributes" VALUES(115,20,'seed','1875953128');
INSERT INTO "trial_user_attributes" VALUES(116,20,'replicate','0');
INSERT INTO "trial_user_attributes" VALUES(117,20,'training_seconds','55.0');
INSERT INTO "trial_user_attributes" VALUES(118,20,'diverged','false');
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
INSERT INTO "trials" VALUES(1,0,1,'FAIL','2026-11-29 11:58:35.205887','2026-11-29 11:58:35.539028');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-29 11:58:37.708120','2026-11-29 11:58:38.079755');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-29 11:58:38.236001','2026-11-29 11:58:39.067639');
INSERT INTO "trials" VALUES(4,3,1,'COMPLETE','2026-11-29 11:58:39.403250','2026-11-29 11:58:39.923546');
INSERT INTO "trials" VALUES(5,4,1,'COMPLETE','2026-11-29 11:58:40.094193','2026-11-29 11:58:40.452948');
INSERT INTO "trials" VALUES(6,5,1,'COMPLETE','2026-11-29 11:58:40.625515','2026-11-29 11:58:40.934690');
INSERT INTO "trials" VALUES(7,6,1,'COMPLETE','2026-11-29 11:58:41.010338','2026-11-29 11:58:41.223398');
INSERT INTO "trials" VALUES(8,7,1,'COMPLETE','2026-11-29 11:58:41.324362','2026-11-29 11:58:41.522562');
INSERT INTO "trials" VALUES(9,8,1,'COMPLETE','2026-11-29 11:58:41.579510','2026-11-29 11:58:41.743702');
INSERT INTO "trials" VALUES(10,0,2,'COMPLETE','2026-11-29 11:58:44.058367','2026-11-29 11:58:44.496114');
INSERT INTO "trials" VALUES(11,1,2,'COMPLETE','2026-11-29 11:58:44.594289','2026-11-29 11:58:45.225643');
INSERT INTO "trials" VALUES(12,2,2,'COMPLETE','2026-11-29 11:58:45.373195','2026-11-29 11:58:45.726810');
INSERT INTO "trials" VALUES(13,3,2,'COMPLETE','2026-11-29 11:58:45.810401','2026-11-29 11:58:46.003269');
INSERT INTO "trials" VALUES(14,4,2,'COMPLETE','2026-11-29 11:58:46.091084','2026-11-29 11:58:46.308068');
INSERT INTO "trials" VALUES(15,0,3,'COMPLETE','2026-11-29 11:58:49.477672','2026-11-29 11:58:49.626520');
INSERT INTO "trials" VALUES(16,1,3,'COMPLETE','2026-11-29 11:58:49.709079','2026-11-29 11:58:49.876563');
INSERT INTO "trials" VALUES(17,2,3,'COMPLETE','2026-11-29 11:58:49.965026','2026-11-29 11:58:50.123300');
INSERT INTO "trials" VALUES(18,0,4,'COMPLETE','2026-11-29 11:58:50.394536','2026-11-29 11:58:50.633986');
INSERT INTO "trials" VALUES(19,1,4,'COMPLETE','2026-11-29 11:58:50.696769','2026-11-29 11:58:50.989423');
INSERT INTO "trials" VALUES(20,2,4,'COMPLETE','2026-11-29 11:58:51.062584','2026-11-29 11:58:51.338856');
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX ix_syncswitch_workloads_reference ON syncswitch_workloads (reference);
CREATE INDEX ix_syncswitch_workloads_name ON syncswitch_workloads (name);
CREATE INDEX ix_syncswitch_searches_fingerprint ON syncswitch_searches (fingerprint);
CREATE INDEX ix_syncswitch_policies_workload_fingerprint ON syncswitch_policies (workload, fingerprint);
CREATE UNIQUE INDEX uq_syncswitch_policies_study ON syncswitch_policies (study) WHERE imported_at IS NULL;
CREATE INDEX ix_syncswitch_trials_fingerprint_candidate_percent_state ON syncswitch_trials (fingerprint, candidate_percent, state);
CREATE UNIQUE INDEX uq_syncswitch_trials_use_id ON syncswitch_trials (use_id) WHERE use_id IS NOT NULL;
CREATE INDEX ix_syncswitch_trials_parent_trial_id ON syncswitch_trials (parent_trial_id);
CREATE INDEX ix_syncswitch_trials_uses ON syncswitch_trials (fingerprint, policy_version) WHERE use_id IS NOT NULL;
CREATE VIEW syncswitch_trial_facts AS SELECT t.trial_id AS trial_id, w.name AS workload, t.fingerprint AS fingerprint, w.workers AS workers, w.simulated_cluster AS simulated_cluster, t.first_protocol AS first_protocol, t.second_protocol AS second_protocol, t.momentum_after_switch AS momentum_after_switch, w.total_worker_steps AS total_worker_steps, w.metric_name AS metric, w.metric_goal AS metric_goal, w.metric_unit AS metric_unit, CASE WHEN t.study IS NOT NULL THEN 'search' WHEN t.source IS NOT NULL THEN 'import' ELSE 'use' END AS kind, t.study AS study, t.trial_number AS trial_number, t.source AS source, t.use_id AS use_id, t.policy_version AS policy_version, t.candidate_percent AS candidate_percent, t.switch_percent AS switch_percent, t.replicate AS replicate, t.seed AS seed, t.parent_trial_id AS parent_trial_id, t.fork_percent AS fork_percent, t.online AS online, t.switch_mechanism AS switch_mechanism, t.injections AS injections, t.speculative AS speculative, t.state AS state, t.converged_accuracy AS converged_accuracy, CASE WHEN (w.metric_goal = 'min') THEN 0.0 - t.converged_accuracy ELSE t.converged_accuracy END AS converged_value, t.converged_evaluations AS converged_evaluations, t.final_accuracy AS final_accuracy, CASE WHEN (w.metric_goal = 'min') THEN 0.0 - t.final_accuracy ELSE t.final_accuracy END AS final_value, t.converged AS converged, t.diverged AS diverged, t.stopped_early AS stopped_early, t.plateau_accuracy AS plateau_accuracy, t.worker_steps AS worker_steps, t.training_seconds AS training_seconds, t.inherited_seconds AS inherited_seconds, t.training_seconds - t.inherited_seconds AS paid_seconds, CASE WHEN t.state <> 'complete' OR t.diverged THEN NULL WHEN t.stopped_early AND t.worker_steps < w.total_worker_steps THEN t.training_seconds + (SELECT CASE WHEN p.seconds > 1e-9 AND p.end_worker_step > p.start_worker_step AND p.protocol = CASE WHEN t.switch_percent < 100 THEN t.second_protocol ELSE t.first_protocol END THEN (w.total_worker_steps - t.worker_steps) * p.seconds / (p.end_worker_step - p.start_worker_step) END FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id ORDER BY p.position DESC LIMIT 1) ELSE t.training_seconds END AS whole_run_seconds, t.switch_overhead_seconds AS switch_overhead_seconds, (SELECT SUM(p.seconds) FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = t.first_protocol) AS first_phase_seconds, (SELECT CASE WHEN SUM(p.seconds) > 1e-9 THEN SUM(p.end_worker_step - p.start_worker_step) / SUM(p.seconds) END FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = t.first_protocol) AS first_phase_worker_steps_per_second, (SELECT SUM(p.seconds) FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = t.second_protocol) AS second_phase_seconds, (SELECT CASE WHEN SUM(p.seconds) > 1e-9 THEN SUM(p.end_worker_step - p.start_worker_step) / SUM(p.seconds) END FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id AND p.protocol = t.second_protocol) AS second_phase_worker_steps_per_second, t.guard AS guard, (SELECT COUNT(*) FROM syncswitch_failed_switches AS f WHERE f.trial_id = t.trial_id) AS failed_switches, t.held_percent AS held_percent, (SELECT SUM(f.lost_seconds) FROM syncswitch_failed_switches AS f WHERE f.trial_id = t.trial_id) AS guard_lost_seconds, t.target_accuracy AS target_accuracy, CASE WHEN (w.metric_goal = 'min') THEN 0.0 - t.target_accuracy ELSE t.target_accuracy END AS target_value, t.time_to_accuracy_seconds AS time_to_accuracy_seconds, CASE WHEN t.target_accuracy IS NOT NULL AND t.state = 'complete' THEN t.time_to_accuracy_seconds IS NULL END AS time_to_accuracy_is_censored, t.started_at AS started_at, t.ended_at AS ended_at, t.host AS host, t.failure AS failure, t.software AS software FROM syncswitch_trials AS t JOIN syncswitch_workloads AS w ON w.fingerprint = t.fingerprint;
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
